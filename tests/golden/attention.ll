; O, full, FusedRowSpec
; sha256 2ed53637a58a7a195f121483ffcc16f261186e13a2a2ca03d23392eb41d81f78
define void @kernel(ptr noalias readonly %args) #0 {
  81 add, 23 and, 12 ashr, 18 bitcast, 33 br, 93 call, 3 extractelement, 5 fadd, 12 fmul, 10 fsub, 70 getelementptr, 19 icmp, 17 insertelement, 5 inttoptr, 58 load, 86 mul, 23 phi, 1 ret, 12 select, 24 shufflevector, 10 store, 9 sub, 6 urem, 17 xor

; O, full, FusedRowSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = getelementptr i64, ptr %args, i64 0
  %v2 = load i64, ptr %v1
  %v3 = getelementptr i64, ptr %args, i64 1
  %v4 = load i64, ptr %v3
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = getelementptr i64, ptr %args, i64 3
  %v8 = load i64, ptr %v7
  %v9 = getelementptr i64, ptr %args, i64 4
  %v10 = load i64, ptr %v9
  %v11 = getelementptr i64, ptr %args, i64 5
  %v12 = load i64, ptr %v11
  %v13 = getelementptr i64, ptr %args, i64 6
  %v14 = load i64, ptr %v13
  %v15 = getelementptr i64, ptr %args, i64 7
  %v16 = load i64, ptr %v15
  %v17 = getelementptr i64, ptr %args, i64 8
  %v18 = load i64, ptr %v17
  %v19 = getelementptr i64, ptr %args, i64 9
  %v20 = load i64, ptr %v19
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = inttoptr i64 %v22 to ptr
  %v24 = getelementptr i64, ptr %args, i64 11
  %v25 = load i64, ptr %v24
  %v26 = getelementptr i64, ptr %args, i64 12
  %v27 = load i64, ptr %v26
  %v28 = getelementptr i64, ptr %args, i64 13
  %v29 = load i64, ptr %v28
  %v30 = getelementptr i64, ptr %args, i64 14
  %v31 = load i64, ptr %v30
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = getelementptr i64, ptr %args, i64 16
  %v35 = load i64, ptr %v34
  %v36 = inttoptr i64 %v35 to ptr
  %v37 = getelementptr i64, ptr %args, i64 17
  %v38 = load i64, ptr %v37
  %v39 = getelementptr i64, ptr %args, i64 18
  %v40 = load i64, ptr %v39
  %v41 = getelementptr i64, ptr %args, i64 19
  %v42 = load i64, ptr %v41
  %v43 = getelementptr i64, ptr %args, i64 20
  %v44 = load i64, ptr %v43
  %v45 = getelementptr i64, ptr %args, i64 21
  %v46 = load i64, ptr %v45
  br label %b47
b47:
  %v50 = phi i64 [ 0, %entry ], [ %v170, %b54 ]
  %v51 = icmp slt i64 %v50, %v2
  br i1 %v51, label %b48, label %b49
b48:
  br label %b52
b52:
  %v55 = phi i64 [ 0, %b48 ], [ %v169, %b126 ]
  %v56 = icmp slt i64 %v55, %v4
  br i1 %v56, label %b53, label %b54
b53:
  %v57 = urem i64 %v8, 64
  %v58 = sub i64 %v8, %v57
  %v59 = urem i64 %v8, 16
  %v60 = sub i64 %v8, %v59
  br label %b61
b61:
  %v64 = phi i64 [ 0, %b53 ], [ %v105, %b62 ]
  %v65 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b53 ], [ %v77, %b62 ]
  %v66 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b53 ], [ %v86, %b62 ]
  %v67 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b53 ], [ %v95, %b62 ]
  %v68 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b53 ], [ %v104, %b62 ]
  %v69 = icmp slt i64 %v64, %v58
  br i1 %v69, label %b62, label %b63
b62:
  %v70 = mul nsw i64 %v50, %v25
  %v71 = mul nsw i64 %v55, %v27
  %v72 = add nsw i64 %v70, %v71
  %v73 = mul nsw i64 %v64, %v31
  %v74 = add nsw i64 %v72, %v73
  %v75 = getelementptr i8, ptr %v23, i64 %v74
  %v76 = load <16 x float>, ptr %v75, align 1
  %v77 = fadd contract <16 x float> %v65, %v76
  %v78 = mul nsw i64 %v50, %v25
  %v79 = mul nsw i64 %v55, %v27
  %v80 = add nsw i64 %v78, %v79
  %v81 = add nsw i64 %v64, 16
  %v82 = mul nsw i64 %v81, %v31
  %v83 = add nsw i64 %v80, %v82
  %v84 = getelementptr i8, ptr %v23, i64 %v83
  %v85 = load <16 x float>, ptr %v84, align 1
  %v86 = fadd contract <16 x float> %v66, %v85
  %v87 = mul nsw i64 %v50, %v25
  %v88 = mul nsw i64 %v55, %v27
  %v89 = add nsw i64 %v87, %v88
  %v90 = add nsw i64 %v64, 32
  %v91 = mul nsw i64 %v90, %v31
  %v92 = add nsw i64 %v89, %v91
  %v93 = getelementptr i8, ptr %v23, i64 %v92
  %v94 = load <16 x float>, ptr %v93, align 1
  %v95 = fadd contract <16 x float> %v67, %v94
  %v96 = mul nsw i64 %v50, %v25
  %v97 = mul nsw i64 %v55, %v27
  %v98 = add nsw i64 %v96, %v97
  %v99 = add nsw i64 %v64, 48
  %v100 = mul nsw i64 %v99, %v31
  %v101 = add nsw i64 %v98, %v100
  %v102 = getelementptr i8, ptr %v23, i64 %v101
  %v103 = load <16 x float>, ptr %v102, align 1
  %v104 = fadd contract <16 x float> %v68, %v103
  %v105 = add nsw i64 %v64, 64
  br label %b61
b63:
  br label %b106
b106:
  %v109 = phi i64 [ %v58, %b63 ], [ %v120, %b107 ]
  %v110 = phi <16 x float> [ %v65, %b63 ], [ %v119, %b107 ]
  %v111 = icmp slt i64 %v109, %v60
  br i1 %v111, label %b107, label %b108
b107:
  %v112 = mul nsw i64 %v50, %v25
  %v113 = mul nsw i64 %v55, %v27
  %v114 = add nsw i64 %v112, %v113
  %v115 = mul nsw i64 %v109, %v31
  %v116 = add nsw i64 %v114, %v115
  %v117 = getelementptr i8, ptr %v23, i64 %v116
  %v118 = load <16 x float>, ptr %v117, align 1
  %v119 = fadd contract <16 x float> %v110, %v118
  %v120 = add nsw i64 %v109, 16
  br label %b106
b108:
  %v121 = icmp slt i64 %v60, %v8
  %v122 = add i64 %v60, 16
  %v123 = select i1 %v121, i64 %v122, i64 %v60
  br label %b124
b124:
  %v127 = phi i64 [ %v60, %b108 ], [ %v146, %b125 ]
  %v128 = phi <16 x float> [ %v110, %b108 ], [ %v145, %b125 ]
  %v129 = icmp slt i64 %v127, %v123
  br i1 %v129, label %b125, label %b126
b125:
  %v130 = sub i64 %v8, %v127
  %v131 = insertelement <16 x i64> poison, i64 %v130, i64 0
  %v132 = shufflevector <16 x i64> %v131, <16 x i64> poison, <16 x i32> zeroinitializer
  %v133 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v132
  %v134 = mul nsw i64 %v50, %v25
  %v135 = mul nsw i64 %v55, %v27
  %v136 = add nsw i64 %v134, %v135
  %v137 = mul nsw i64 %v127, %v31
  %v138 = add nsw i64 %v136, %v137
  %v139 = getelementptr i8, ptr %v23, i64 %v138
  %v140 = load float, ptr %v139, align 1
  %v141 = insertelement <16 x float> poison, float %v140, i64 0
  %v142 = shufflevector <16 x float> %v141, <16 x float> poison, <16 x i32> zeroinitializer
  %v143 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v139, i32 1, <16 x i1> %v133, <16 x float> %v142)
  %v144 = fadd contract <16 x float> %v128, %v143
  %v145 = select <16 x i1> %v133, <16 x float> %v144, <16 x float> %v128
  %v146 = add nsw i64 %v127, 16
  br label %b124
b126:
  %v147 = fadd contract <16 x float> %v128, %v66
  %v148 = fadd contract <16 x float> %v67, %v68
  %v149 = fadd contract <16 x float> %v147, %v148
  %v150 = shufflevector <16 x float> %v149, <16 x float> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v151 = fadd contract <16 x float> %v149, %v150
  %v152 = shufflevector <16 x float> %v151, <16 x float> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v153 = fadd contract <16 x float> %v151, %v152
  %v154 = shufflevector <16 x float> %v153, <16 x float> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v155 = fadd contract <16 x float> %v153, %v154
  %v156 = shufflevector <16 x float> %v155, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v157 = fadd contract <16 x float> %v155, %v156
  %v158 = extractelement <16 x float> %v157, i64 0
  %v159 = mul nsw i64 %v50, %v38
  %v160 = mul nsw i64 %v55, %v40
  %v161 = add nsw i64 %v159, %v160
  %v162 = getelementptr i8, ptr %v36, i64 %v161
  %v163 = load float, ptr %v162, align 1
  %v164 = fadd contract float %v163, %v158
  %v165 = mul nsw i64 %v50, %v38
  %v166 = mul nsw i64 %v55, %v40
  %v167 = add nsw i64 %v165, %v166
  %v168 = getelementptr i8, ptr %v36, i64 %v167
  store float %v164, ptr %v168, align 1
  %v169 = add nsw i64 %v55, 1
  br label %b52
b54:
  %v170 = add nsw i64 %v50, 1
  br label %b47
b49:
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
!0 = !{i32 1}

; O, full, FusedRowSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = getelementptr i64, ptr %args, i64 0
  %v2 = load i64, ptr %v1
  %v3 = getelementptr i64, ptr %args, i64 1
  %v4 = load i64, ptr %v3
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = getelementptr i64, ptr %args, i64 3
  %v8 = load i64, ptr %v7
  %v9 = getelementptr i64, ptr %args, i64 4
  %v10 = load i64, ptr %v9
  %v11 = getelementptr i64, ptr %args, i64 5
  %v12 = load i64, ptr %v11
  %v13 = getelementptr i64, ptr %args, i64 6
  %v14 = load i64, ptr %v13
  %v15 = getelementptr i64, ptr %args, i64 7
  %v16 = load i64, ptr %v15
  %v17 = getelementptr i64, ptr %args, i64 8
  %v18 = load i64, ptr %v17
  %v19 = getelementptr i64, ptr %args, i64 9
  %v20 = load i64, ptr %v19
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = inttoptr i64 %v22 to ptr
  %v24 = getelementptr i64, ptr %args, i64 11
  %v25 = load i64, ptr %v24
  %v26 = getelementptr i64, ptr %args, i64 12
  %v27 = load i64, ptr %v26
  %v28 = getelementptr i64, ptr %args, i64 13
  %v29 = load i64, ptr %v28
  %v30 = getelementptr i64, ptr %args, i64 14
  %v31 = load i64, ptr %v30
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = getelementptr i64, ptr %args, i64 16
  %v35 = load i64, ptr %v34
  %v36 = inttoptr i64 %v35 to ptr
  %v37 = getelementptr i64, ptr %args, i64 17
  %v38 = load i64, ptr %v37
  %v39 = getelementptr i64, ptr %args, i64 18
  %v40 = load i64, ptr %v39
  %v41 = getelementptr i64, ptr %args, i64 19
  %v42 = load i64, ptr %v41
  %v43 = getelementptr i64, ptr %args, i64 20
  %v44 = load i64, ptr %v43
  %v45 = getelementptr i64, ptr %args, i64 21
  %v46 = load i64, ptr %v45
  %v47 = getelementptr i64, ptr %args, i64 22
  %v48 = load i64, ptr %v47
  %v49 = inttoptr i64 %v48 to ptr
  %v50 = getelementptr i64, ptr %args, i64 23
  %v51 = load i64, ptr %v50
  %v52 = getelementptr i64, ptr %args, i64 24
  %v53 = load i64, ptr %v52
  %v54 = getelementptr i64, ptr %args, i64 25
  %v55 = load i64, ptr %v54
  %v56 = getelementptr i64, ptr %args, i64 26
  %v57 = load i64, ptr %v56
  %v58 = getelementptr i64, ptr %args, i64 27
  %v59 = load i64, ptr %v58
  br label %b60
b60:
  %v63 = phi i64 [ 0, %entry ], [ %v96, %b67 ]
  %v64 = icmp slt i64 %v63, %v2
  br i1 %v64, label %b61, label %b62
b61:
  br label %b65
b65:
  %v68 = phi i64 [ 0, %b61 ], [ %v95, %b72 ]
  %v69 = icmp slt i64 %v68, %v4
  br i1 %v69, label %b66, label %b67
b66:
  br label %b70
b70:
  %v73 = phi i64 [ 0, %b66 ], [ %v94, %b71 ]
  %v74 = icmp slt i64 %v73, %v6
  br i1 %v74, label %b71, label %b72
b71:
  %v75 = mul nsw i64 %v63, %v25
  %v76 = mul nsw i64 %v68, %v27
  %v77 = add nsw i64 %v75, %v76
  %v78 = mul nsw i64 %v73, %v29
  %v79 = add nsw i64 %v77, %v78
  %v80 = getelementptr i8, ptr %v23, i64 %v79
  %v81 = load float, ptr %v80, align 1
  %v82 = mul nsw i64 %v63, %v38
  %v83 = mul nsw i64 %v68, %v40
  %v84 = add nsw i64 %v82, %v83
  %v85 = getelementptr i8, ptr %v36, i64 %v84
  %v86 = load float, ptr %v85, align 1
  %v87 = fdiv contract float %v81, %v86
  %v88 = mul nsw i64 %v63, %v51
  %v89 = mul nsw i64 %v68, %v53
  %v90 = add nsw i64 %v88, %v89
  %v91 = mul nsw i64 %v73, %v55
  %v92 = add nsw i64 %v90, %v91
  %v93 = getelementptr i8, ptr %v49, i64 %v92
  store float %v87, ptr %v93, align 1
  %v94 = add nsw i64 %v73, 1
  br label %b70
b72:
  %v95 = add nsw i64 %v68, 1
  br label %b65
b67:
  %v96 = add nsw i64 %v63, 1
  br label %b60
b62:
  ret void
}

!0 = !{i32 1}

; O, full, CommandListExecutor
define void @kernel(ptr %words) #0 {
entry:
  %v1 = alloca i32
  %v2 = getelementptr i8, ptr %words, i64 0
  %v3 = load i64, ptr %v2, align 1
  %v4 = inttoptr i64 %v3 to ptr
  %v5 = getelementptr i8, ptr %words, i64 8
  %v6 = load i64, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %words, i64 16
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %words, i64 24
  %v10 = load i64, ptr %v9, align 1
  %v11 = trunc i64 %v10 to i32
  br label %b12
b12:
  %v15 = phi i64 [ %v8, %entry ], [ %v235, %b37 ]
  %v16 = phi i64 [ %v6, %entry ], [ %v237, %b37 ]
  %v17 = icmp slt i64 %v15, %v16
  br i1 %v17, label %b13, label %b14
b13:
  %v18 = mul nsw i64 %v15, 2
  %v19 = mul nsw i64 %v18, 8
  %v20 = getelementptr i8, ptr %v4, i64 %v19
  %v21 = load i64, ptr %v20, align 1
  %v22 = mul nsw i64 %v15, 2
  %v23 = mul nsw i64 %v22, 8
  %v24 = getelementptr i8, ptr %v4, i64 %v23
  %v25 = getelementptr i8, ptr %v24, i64 8
  %v26 = load i64, ptr %v25, align 1
  %v27 = inttoptr i64 %v26 to ptr
  switch i64 %v21, label %b37 [ i64 0, label %b28 i64 1, label %b29 i64 2, label %b30 i64 8, label %b31 i64 7, label %b32 i64 3, label %b33 i64 4, label %b34 i64 5, label %b35 i64 6, label %b36 ]
b28:
  %v38 = getelementptr i8, ptr %v27, i64 0
  %v39 = load i64, ptr %v38, align 1
  %v40 = inttoptr i64 %v39 to ptr
  %v41 = getelementptr i8, ptr %v27, i64 8
  call void %v40(ptr %v41)
  br label %b37
b29:
  %v42 = getelementptr i8, ptr %v27, i64 0
  %v43 = load i64, ptr %v42, align 1
  %v44 = inttoptr i64 %v43 to ptr
  %v45 = getelementptr i8, ptr %v27, i64 8
  %v46 = load i64, ptr %v45, align 1
  %v47 = getelementptr i8, ptr %v27, i64 16
  %v48 = load i64, ptr %v47, align 1
  %v49 = trunc i64 %v48 to i32
  %v50 = urem i64 %v46, 16
  %v51 = sub nsw i64 %v46, %v50
  %v52 = insertelement <16 x i32> poison, i32 %v49, i64 0
  %v53 = shufflevector <16 x i32> %v52, <16 x i32> poison, <16 x i32> zeroinitializer
  br label %b54
b54:
  %v57 = phi i64 [ 0, %b29 ], [ %v61, %b55 ]
  %v58 = icmp slt i64 %v57, %v51
  br i1 %v58, label %b55, label %b56
b55:
  %v59 = mul nsw i64 %v57, 4
  %v60 = getelementptr i8, ptr %v44, i64 %v59
  store <16 x i32> %v53, ptr %v60, align 1
  %v61 = add nsw i64 %v57, 16
  br label %b54
b56:
  br label %b62
b62:
  %v65 = phi i64 [ %v51, %b56 ], [ %v69, %b63 ]
  %v66 = icmp slt i64 %v65, %v46
  br i1 %v66, label %b63, label %b64
b63:
  %v67 = mul nsw i64 %v65, 4
  %v68 = getelementptr i8, ptr %v44, i64 %v67
  store i32 %v49, ptr %v68, align 1
  %v69 = add nsw i64 %v65, 1
  br label %b62
b64:
  br label %b37
b30:
  %v70 = getelementptr i8, ptr %v27, i64 0
  %v71 = load i64, ptr %v70, align 1
  %v72 = inttoptr i64 %v71 to ptr
  %v73 = getelementptr i8, ptr %v27, i64 8
  %v74 = load i64, ptr %v73, align 1
  %v75 = getelementptr i8, ptr %v27, i64 16
  %v76 = load i64, ptr %v75, align 1
  %v77 = urem i64 %v74, 16
  %v78 = sub nsw i64 %v74, %v77
  %v79 = insertelement <16 x i64> poison, i64 %v76, i64 0
  %v80 = shufflevector <16 x i64> %v79, <16 x i64> poison, <16 x i32> zeroinitializer
  br label %b81
b81:
  %v84 = phi i64 [ 0, %b30 ], [ %v88, %b82 ]
  %v85 = icmp slt i64 %v84, %v78
  br i1 %v85, label %b82, label %b83
b82:
  %v86 = mul nsw i64 %v84, 8
  %v87 = getelementptr i8, ptr %v72, i64 %v86
  store <16 x i64> %v80, ptr %v87, align 1
  %v88 = add nsw i64 %v84, 16
  br label %b81
b83:
  br label %b89
b89:
  %v92 = phi i64 [ %v78, %b83 ], [ %v96, %b90 ]
  %v93 = icmp slt i64 %v92, %v74
  br i1 %v93, label %b90, label %b91
b90:
  %v94 = mul nsw i64 %v92, 8
  %v95 = getelementptr i8, ptr %v72, i64 %v94
  store i64 %v76, ptr %v95, align 1
  %v96 = add nsw i64 %v92, 1
  br label %b89
b91:
  br label %b37
b31:
  %v97 = getelementptr i8, ptr %v27, i64 0
  %v98 = load i64, ptr %v97, align 1
  %v99 = inttoptr i64 %v98 to ptr
  %v100 = getelementptr i8, ptr %v27, i64 8
  %v101 = load i64, ptr %v100, align 1
  %v102 = inttoptr i64 %v101 to ptr
  %v103 = getelementptr i8, ptr %v27, i64 16
  %v104 = load i64, ptr %v103, align 1
  %v105 = inttoptr i64 %v104 to ptr
  %v106 = getelementptr i8, ptr %v27, i64 24
  %v107 = load i64, ptr %v106, align 1
  call void %v99(ptr %v102, ptr %v105, i64 %v107)
  br label %b37
b32:
  %v108 = call i64 @llvm.readcyclecounter()
  store i64 %v108, ptr %v27, align 1
  br label %b37
b33:
  %v109 = getelementptr i8, ptr %v27, i64 0
  %v110 = load i64, ptr %v109, align 1
  %v111 = inttoptr i64 %v110 to ptr
  %v112 = getelementptr i8, ptr %v27, i64 8
  %v113 = load i32, ptr %v112, align 1
  %v114 = getelementptr i8, ptr %v27, i64 16
  %v115 = load i32, ptr %v114, align 1
  %v116 = getelementptr i8, ptr %v27, i64 24
  %v117 = load i32, ptr %v116, align 1
  %v118 = getelementptr i8, ptr %v27, i64 32
  %v119 = load i32, ptr %v118, align 1
  %v120 = getelementptr i8, ptr %v27, i64 40
  %v121 = load i32, ptr %v120, align 1
  %v122 = getelementptr i8, ptr %v27, i64 48
  %v123 = load i32, ptr %v122, align 1
  %v124 = getelementptr i8, ptr %v27, i64 56
  %v125 = load float, ptr %v124, align 1
  %v126 = getelementptr i8, ptr %v27, i64 64
  %v127 = load ptr, ptr %v126, align 1
  %v128 = getelementptr i8, ptr %v27, i64 72
  %v129 = load i32, ptr %v128, align 1
  %v130 = getelementptr i8, ptr %v27, i64 80
  %v131 = load ptr, ptr %v130, align 1
  %v132 = getelementptr i8, ptr %v27, i64 88
  %v133 = load i32, ptr %v132, align 1
  %v134 = getelementptr i8, ptr %v27, i64 96
  %v135 = load float, ptr %v134, align 1
  %v136 = getelementptr i8, ptr %v27, i64 104
  %v137 = load ptr, ptr %v136, align 1
  %v138 = getelementptr i8, ptr %v27, i64 112
  %v139 = load i32, ptr %v138, align 1
  call void %v111(i32 %v113, i32 %v115, i32 %v117, i32 %v119, i32 %v121, i32 %v123, float %v125, ptr %v127, i32 %v129, ptr %v131, i32 %v133, float %v135, ptr %v137, i32 %v139)
  br label %b37
b34:
  %v140 = getelementptr i8, ptr %v27, i64 0
  %v141 = load i64, ptr %v140, align 1
  %v142 = inttoptr i64 %v141 to ptr
  %v143 = getelementptr i8, ptr %v27, i64 8
  %v144 = load i32, ptr %v143, align 1
  %v145 = getelementptr i8, ptr %v27, i64 16
  %v146 = load i32, ptr %v145, align 1
  %v147 = getelementptr i8, ptr %v27, i64 24
  %v148 = load i32, ptr %v147, align 1
  %v149 = getelementptr i8, ptr %v27, i64 32
  %v150 = load i32, ptr %v149, align 1
  %v151 = getelementptr i8, ptr %v27, i64 40
  %v152 = load i32, ptr %v151, align 1
  %v153 = getelementptr i8, ptr %v27, i64 48
  %v154 = load i32, ptr %v153, align 1
  %v155 = getelementptr i8, ptr %v27, i64 56
  %v156 = load double, ptr %v155, align 1
  %v157 = getelementptr i8, ptr %v27, i64 64
  %v158 = load ptr, ptr %v157, align 1
  %v159 = getelementptr i8, ptr %v27, i64 72
  %v160 = load i32, ptr %v159, align 1
  %v161 = getelementptr i8, ptr %v27, i64 80
  %v162 = load ptr, ptr %v161, align 1
  %v163 = getelementptr i8, ptr %v27, i64 88
  %v164 = load i32, ptr %v163, align 1
  %v165 = getelementptr i8, ptr %v27, i64 96
  %v166 = load double, ptr %v165, align 1
  %v167 = getelementptr i8, ptr %v27, i64 104
  %v168 = load ptr, ptr %v167, align 1
  %v169 = getelementptr i8, ptr %v27, i64 112
  %v170 = load i32, ptr %v169, align 1
  call void %v142(i32 %v144, i32 %v146, i32 %v148, i32 %v150, i32 %v152, i32 %v154, double %v156, ptr %v158, i32 %v160, ptr %v162, i32 %v164, double %v166, ptr %v168, i32 %v170)
  br label %b37
b35:
  %v171 = getelementptr i8, ptr %v27, i64 0
  %v172 = load i64, ptr %v171, align 1
  %v173 = inttoptr i64 %v172 to ptr
  %v174 = getelementptr i8, ptr %v27, i64 8
  %v175 = load i32, ptr %v174, align 1
  %v176 = getelementptr i8, ptr %v27, i64 16
  %v177 = load i32, ptr %v176, align 1
  %v178 = getelementptr i8, ptr %v27, i64 24
  %v179 = load i32, ptr %v178, align 1
  %v180 = getelementptr i8, ptr %v27, i64 32
  %v181 = load i64, ptr %v180, align 1
  %v182 = getelementptr i8, ptr %v27, i64 40
  %v183 = load i64, ptr %v182, align 1
  %v184 = getelementptr i8, ptr %v27, i64 48
  %v185 = load i64, ptr %v184, align 1
  %v186 = getelementptr i8, ptr %v27, i64 56
  %v187 = load float, ptr %v186, align 1
  %v188 = getelementptr i8, ptr %v27, i64 64
  %v189 = load ptr, ptr %v188, align 1
  %v190 = getelementptr i8, ptr %v27, i64 72
  %v191 = load i64, ptr %v190, align 1
  %v192 = getelementptr i8, ptr %v27, i64 80
  %v193 = load ptr, ptr %v192, align 1
  %v194 = getelementptr i8, ptr %v27, i64 88
  %v195 = load i64, ptr %v194, align 1
  %v196 = getelementptr i8, ptr %v27, i64 96
  %v197 = load float, ptr %v196, align 1
  %v198 = getelementptr i8, ptr %v27, i64 104
  %v199 = load ptr, ptr %v198, align 1
  %v200 = getelementptr i8, ptr %v27, i64 112
  %v201 = load i64, ptr %v200, align 1
  call void %v173(i32 %v175, i32 %v177, i32 %v179, i64 %v181, i64 %v183, i64 %v185, float %v187, ptr %v189, i64 %v191, ptr %v193, i64 %v195, float %v197, ptr %v199, i64 %v201)
  br label %b37
b36:
  %v202 = getelementptr i8, ptr %v27, i64 0
  %v203 = load i64, ptr %v202, align 1
  %v204 = inttoptr i64 %v203 to ptr
  %v205 = getelementptr i8, ptr %v27, i64 8
  %v206 = load i32, ptr %v205, align 1
  %v207 = getelementptr i8, ptr %v27, i64 16
  %v208 = load i32, ptr %v207, align 1
  %v209 = getelementptr i8, ptr %v27, i64 24
  %v210 = load i32, ptr %v209, align 1
  %v211 = getelementptr i8, ptr %v27, i64 32
  %v212 = load i64, ptr %v211, align 1
  %v213 = getelementptr i8, ptr %v27, i64 40
  %v214 = load i64, ptr %v213, align 1
  %v215 = getelementptr i8, ptr %v27, i64 48
  %v216 = load i64, ptr %v215, align 1
  %v217 = getelementptr i8, ptr %v27, i64 56
  %v218 = load double, ptr %v217, align 1
  %v219 = getelementptr i8, ptr %v27, i64 64
  %v220 = load ptr, ptr %v219, align 1
  %v221 = getelementptr i8, ptr %v27, i64 72
  %v222 = load i64, ptr %v221, align 1
  %v223 = getelementptr i8, ptr %v27, i64 80
  %v224 = load ptr, ptr %v223, align 1
  %v225 = getelementptr i8, ptr %v27, i64 88
  %v226 = load i64, ptr %v225, align 1
  %v227 = getelementptr i8, ptr %v27, i64 96
  %v228 = load double, ptr %v227, align 1
  %v229 = getelementptr i8, ptr %v27, i64 104
  %v230 = load ptr, ptr %v229, align 1
  %v231 = getelementptr i8, ptr %v27, i64 112
  %v232 = load i64, ptr %v231, align 1
  call void %v204(i32 %v206, i32 %v208, i32 %v210, i64 %v212, i64 %v214, i64 %v216, double %v218, ptr %v220, i64 %v222, ptr %v224, i64 %v226, double %v228, ptr %v230, i64 %v232)
  br label %b37
b37:
  call void @llvm.x86.sse.stmxcsr(ptr %v1)
  %v233 = load i32, ptr %v1, align 1
  %v234 = and i32 %v233, %v11
  %v235 = add nsw i64 %v15, 1
  %v236 = icmp ne i32 %v234, 0
  %v237 = select i1 %v236, i64 %v235, i64 %v16
  br label %b12
b14:
  %v238 = getelementptr i8, ptr %words, i64 16
  store i64 %v15, ptr %v238, align 1
  ret void
}

declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.stmxcsr(ptr)
!0 = !{i32 1}

; O, full, PackedSpec
; sha256 3be9c501946476f65c762efc1827a8faa60d7c5d2a98ff9c9c800848fdbd5719
define internal i64 @place(ptr %list, i64 %number, i64 %word) #0 {
  3 add, 3 br, 4 getelementptr, 1 icmp, 3 load, 3 mul, 3 phi, 1 ret, 2 sub, 1 udiv, 1 urem

define internal void @table(ptr %places, ptr %runs, ptr %list, i64 %begin, i64 %count, i64 %padded, i64 %word) #0 {
  8 add, 12 br, 1 call, 8 getelementptr, 5 icmp, 4 load, 6 mul, 9 phi, 1 ret, 1 select, 3 store, 6 sub, 1 urem

define internal void @pack_left(ptr %target, ptr %source, ptr %places, ptr %runs, ptr %terms, ptr %term_runs, ptr %ahead, i64 %count) #0 {
  21 add, 2 and, 12 br, 18 call, 234 getelementptr, 5 icmp, 106 load, 78 mul, 2 phi, 1 ret, 1 select, 64 shufflevector, 36 store, 2 sub, 1 udiv

define internal void @pack_right(ptr %target, ptr %source, ptr %places, ptr %runs, ptr %terms, ptr %term_runs, ptr %ahead, i64 %count) #0 {
  46 add, 2 and, 36 br, 11 call, 436 getelementptr, 14 icmp, 219 load, 145 mul, 7 phi, 1 ret, 2 select, 128 shufflevector, 68 store, 5 sub, 2 udiv

define internal void @update(ptr %tile, ptr %out, ptr %rows, ptr %columns, ptr %runs, ptr %factor, i64 %height, i64 %breadth, i64 %how) #0 {
  40 add, 8 and, 76 br, 10 call, 6 fadd, 10 fmul, 2 fptrunc, 64 getelementptr, 29 icmp, 5 insertelement, 42 load, 50 mul, 18 phi, 2 ptrtoint, 1 ret, 2 select, 5 shufflevector, 8 store, 4 sub

define internal void @pack_columns(ptr %panels, ptr %source, ptr %columns, ptr %terms, ptr %near, i64 %first, i64 %step, i64 %part, i64 %panel_nbytes, i64 %count) #0 {
  82 add, 3 and, 44 br, 19 call, 92 getelementptr, 22 icmp, 5 insertelement, 39 load, 95 mul, 13 phi, 1 ret, 133 shufflevector, 34 store, 30 sub, 25 udiv, 20 urem

define internal void @pack_terms(ptr %panel, ptr %source, ptr %columns, ptr %terms, ptr %near, i64 %step, i64 %part, i64 %count) #0 {
  26 add, 15 br, 34 call, 87 getelementptr, 6 icmp, 1 insertelement, 35 load, 41 mul, 4 phi, 1 ret, 65 shufflevector, 33 store, 3 sub, 2 udiv

define internal void @tile4x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 17 call, 8 fadd, 16 fmul, 3 fptrunc, 62 getelementptr, 8 icmp, 9 insertelement, 26 load, 4 mul, 6 phi, 1 ret, 1 select, 9 shufflevector, 8 store, 2 sub

define internal void @tile4x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 21 call, 16 fadd, 32 fmul, 3 fptrunc, 107 getelementptr, 8 icmp, 9 insertelement, 43 load, 4 mul, 10 phi, 1 ret, 1 select, 9 shufflevector, 24 store, 2 sub

define internal void @tile8x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 33 call, 16 fadd, 32 fmul, 3 fptrunc, 118 getelementptr, 8 icmp, 13 insertelement, 46 load, 4 mul, 10 phi, 1 ret, 1 select, 13 shufflevector, 16 store, 2 sub

define internal void @tile8x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 41 call, 32 fadd, 64 fmul, 3 fptrunc, 207 getelementptr, 8 icmp, 13 insertelement, 79 load, 4 mul, 18 phi, 1 ret, 1 select, 13 shufflevector, 48 store, 2 sub

define internal void @tile12x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 49 call, 24 fadd, 48 fmul, 3 fptrunc, 174 getelementptr, 8 icmp, 17 insertelement, 66 load, 4 mul, 14 phi, 1 ret, 1 select, 17 shufflevector, 24 store, 2 sub

define internal void @tile12x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 61 call, 48 fadd, 96 fmul, 3 fptrunc, 307 getelementptr, 8 icmp, 17 insertelement, 115 load, 4 mul, 26 phi, 1 ret, 1 select, 17 shufflevector, 72 store, 2 sub

define internal void @strip4x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 27 call, 12 fadd, 16 fmul, 3 fptrunc, 85 getelementptr, 11 icmp, 9 insertelement, 36 load, 8 mul, 15 phi, 1 ret, 4 select, 9 shufflevector, 8 store, 5 sub, 1 udiv

define internal void @strip4x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 31 call, 24 fadd, 32 fmul, 3 fptrunc, 130 getelementptr, 11 icmp, 9 insertelement, 53 load, 8 mul, 27 phi, 1 ret, 4 select, 9 shufflevector, 24 store, 5 sub, 1 udiv

define internal void @strip8x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 51 call, 24 fadd, 32 fmul, 3 fptrunc, 165 getelementptr, 11 icmp, 13 insertelement, 68 load, 12 mul, 27 phi, 1 ret, 4 select, 13 shufflevector, 16 store, 5 sub, 1 udiv

define internal void @strip8x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 59 call, 48 fadd, 64 fmul, 3 fptrunc, 254 getelementptr, 11 icmp, 13 insertelement, 101 load, 12 mul, 51 phi, 1 ret, 4 select, 13 shufflevector, 48 store, 5 sub, 1 udiv

define void @kernel(ptr %words) #0 {
  38 add, 35 and, 94 br, 61 call, 127 getelementptr, 75 icmp, 4 inttoptr, 41 load, 86 mul, 12 phi, 3 ptrtoint, 1 ret, 27 select, 2 store, 34 sub, 23 udiv, 1 urem, 10 xor

