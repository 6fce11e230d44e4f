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
  %v7 = getelementptr i8, ptr %words, i64 24
  %v8 = load i64, ptr %v7, align 1
  %v9 = trunc i64 %v8 to i32
  %v10 = getelementptr i8, ptr %words, i64 16
  %v11 = load i64, ptr %v10, align 1
  br label %b12
b12:
  %v15 = phi i64 [ %v11, %entry ], [ %v312, %b270 ]
  %v16 = phi i64 [ 1, %entry ], [ %v313, %b270 ]
  %v17 = icmp ne i64 %v16, 0
  br i1 %v17, label %b13, label %b14
b13:
  br label %b18
b18:
  %v21 = phi i64 [ %v15, %b13 ], [ %v258, %b44 ]
  %v22 = phi i64 [ %v6, %b13 ], [ %v260, %b44 ]
  %v23 = phi i32 [ 0, %b13 ], [ %v257, %b44 ]
  %v24 = icmp slt i64 %v21, %v22
  br i1 %v24, label %b19, label %b20
b19:
  %v25 = mul nsw i64 %v21, 2
  %v26 = mul nsw i64 %v25, 8
  %v27 = getelementptr i8, ptr %v4, i64 %v26
  %v28 = load i64, ptr %v27, align 1
  %v29 = mul nsw i64 %v21, 2
  %v30 = mul nsw i64 %v29, 8
  %v31 = getelementptr i8, ptr %v4, i64 %v30
  %v32 = getelementptr i8, ptr %v31, i64 8
  %v33 = load i64, ptr %v32, align 1
  %v34 = inttoptr i64 %v33 to ptr
  switch i64 %v28, label %b44 [ i64 0, label %b35 i64 1, label %b36 i64 2, label %b37 i64 8, label %b38 i64 7, label %b39 i64 3, label %b40 i64 4, label %b41 i64 5, label %b42 i64 6, label %b43 ]
b35:
  %v45 = getelementptr i8, ptr %v34, i64 0
  %v46 = load i64, ptr %v45, align 1
  %v47 = inttoptr i64 %v46 to ptr
  %v48 = getelementptr i8, ptr %v34, i64 8
  call void %v47(ptr %v48)
  br label %b44
b36:
  %v49 = getelementptr i8, ptr %v34, i64 0
  %v50 = load i64, ptr %v49, align 1
  %v51 = inttoptr i64 %v50 to ptr
  %v52 = getelementptr i8, ptr %v34, i64 8
  %v53 = load i64, ptr %v52, align 1
  %v54 = getelementptr i8, ptr %v34, i64 16
  %v55 = load i64, ptr %v54, align 1
  %v56 = trunc i64 %v55 to i32
  %v57 = urem i64 %v53, 16
  %v58 = sub nsw i64 %v53, %v57
  %v59 = insertelement <16 x i32> poison, i32 %v56, i64 0
  %v60 = shufflevector <16 x i32> %v59, <16 x i32> poison, <16 x i32> zeroinitializer
  br label %b61
b61:
  %v64 = phi i64 [ 0, %b36 ], [ %v68, %b62 ]
  %v65 = icmp slt i64 %v64, %v58
  br i1 %v65, label %b62, label %b63
b62:
  %v66 = mul nsw i64 %v64, 4
  %v67 = getelementptr i8, ptr %v51, i64 %v66
  store <16 x i32> %v60, ptr %v67, align 1
  %v68 = add nsw i64 %v64, 16
  br label %b61
b63:
  br label %b69
b69:
  %v72 = phi i64 [ %v58, %b63 ], [ %v76, %b70 ]
  %v73 = icmp slt i64 %v72, %v53
  br i1 %v73, label %b70, label %b71
b70:
  %v74 = mul nsw i64 %v72, 4
  %v75 = getelementptr i8, ptr %v51, i64 %v74
  store i32 %v56, ptr %v75, align 1
  %v76 = add nsw i64 %v72, 1
  br label %b69
b71:
  br label %b44
b37:
  %v77 = getelementptr i8, ptr %v34, i64 0
  %v78 = load i64, ptr %v77, align 1
  %v79 = inttoptr i64 %v78 to ptr
  %v80 = getelementptr i8, ptr %v34, i64 8
  %v81 = load i64, ptr %v80, align 1
  %v82 = getelementptr i8, ptr %v34, i64 16
  %v83 = load i64, ptr %v82, align 1
  %v84 = urem i64 %v81, 16
  %v85 = sub nsw i64 %v81, %v84
  %v86 = insertelement <16 x i64> poison, i64 %v83, i64 0
  %v87 = shufflevector <16 x i64> %v86, <16 x i64> poison, <16 x i32> zeroinitializer
  br label %b88
b88:
  %v91 = phi i64 [ 0, %b37 ], [ %v95, %b89 ]
  %v92 = icmp slt i64 %v91, %v85
  br i1 %v92, label %b89, label %b90
b89:
  %v93 = mul nsw i64 %v91, 8
  %v94 = getelementptr i8, ptr %v79, i64 %v93
  store <16 x i64> %v87, ptr %v94, align 1
  %v95 = add nsw i64 %v91, 16
  br label %b88
b90:
  br label %b96
b96:
  %v99 = phi i64 [ %v85, %b90 ], [ %v103, %b97 ]
  %v100 = icmp slt i64 %v99, %v81
  br i1 %v100, label %b97, label %b98
b97:
  %v101 = mul nsw i64 %v99, 8
  %v102 = getelementptr i8, ptr %v79, i64 %v101
  store i64 %v83, ptr %v102, align 1
  %v103 = add nsw i64 %v99, 1
  br label %b96
b98:
  br label %b44
b38:
  %v104 = getelementptr i8, ptr %v34, i64 0
  %v105 = load i64, ptr %v104, align 1
  %v106 = inttoptr i64 %v105 to ptr
  %v107 = getelementptr i8, ptr %v34, i64 8
  %v108 = load i64, ptr %v107, align 1
  %v109 = inttoptr i64 %v108 to ptr
  %v110 = getelementptr i8, ptr %v34, i64 16
  %v111 = load i64, ptr %v110, align 1
  %v112 = inttoptr i64 %v111 to ptr
  %v113 = getelementptr i8, ptr %v34, i64 24
  %v114 = load i64, ptr %v113, align 1
  %v115 = getelementptr i8, ptr %v34, i64 32
  %v116 = load i64, ptr %v115, align 1
  %v117 = getelementptr i8, ptr %v34, i64 40
  %v118 = load i64, ptr %v117, align 1
  %v119 = getelementptr i8, ptr %v34, i64 48
  %v120 = load i64, ptr %v119, align 1
  br label %b121
b121:
  %v124 = phi i64 [ 0, %b38 ], [ %v130, %b122 ]
  %v125 = icmp slt i64 %v124, %v116
  br i1 %v125, label %b122, label %b123
b122:
  %v126 = mul nsw i64 %v124, %v118
  %v127 = getelementptr i8, ptr %v109, i64 %v126
  %v128 = mul nsw i64 %v124, %v120
  %v129 = getelementptr i8, ptr %v112, i64 %v128
  call void %v106(ptr %v127, ptr %v129, i64 %v114)
  %v130 = add nsw i64 %v124, 1
  br label %b121
b123:
  br label %b44
b39:
  %v131 = call i64 @llvm.readcyclecounter()
  store i64 %v131, ptr %v34, align 1
  br label %b44
b40:
  %v132 = getelementptr i8, ptr %v34, i64 0
  %v133 = load i64, ptr %v132, align 1
  %v134 = inttoptr i64 %v133 to ptr
  %v135 = getelementptr i8, ptr %v34, i64 8
  %v136 = load i32, ptr %v135, align 1
  %v137 = getelementptr i8, ptr %v34, i64 16
  %v138 = load i32, ptr %v137, align 1
  %v139 = getelementptr i8, ptr %v34, i64 24
  %v140 = load i32, ptr %v139, align 1
  %v141 = getelementptr i8, ptr %v34, i64 32
  %v142 = load i32, ptr %v141, align 1
  %v143 = getelementptr i8, ptr %v34, i64 40
  %v144 = load i32, ptr %v143, align 1
  %v145 = getelementptr i8, ptr %v34, i64 48
  %v146 = load i32, ptr %v145, align 1
  %v147 = getelementptr i8, ptr %v34, i64 56
  %v148 = load float, ptr %v147, align 1
  %v149 = getelementptr i8, ptr %v34, i64 64
  %v150 = load ptr, ptr %v149, align 1
  %v151 = getelementptr i8, ptr %v34, i64 72
  %v152 = load i32, ptr %v151, align 1
  %v153 = getelementptr i8, ptr %v34, i64 80
  %v154 = load ptr, ptr %v153, align 1
  %v155 = getelementptr i8, ptr %v34, i64 88
  %v156 = load i32, ptr %v155, align 1
  %v157 = getelementptr i8, ptr %v34, i64 96
  %v158 = load float, ptr %v157, align 1
  %v159 = getelementptr i8, ptr %v34, i64 104
  %v160 = load ptr, ptr %v159, align 1
  %v161 = getelementptr i8, ptr %v34, i64 112
  %v162 = load i32, ptr %v161, align 1
  call void %v134(i32 %v136, i32 %v138, i32 %v140, i32 %v142, i32 %v144, i32 %v146, float %v148, ptr %v150, i32 %v152, ptr %v154, i32 %v156, float %v158, ptr %v160, i32 %v162)
  br label %b44
b41:
  %v163 = getelementptr i8, ptr %v34, i64 0
  %v164 = load i64, ptr %v163, align 1
  %v165 = inttoptr i64 %v164 to ptr
  %v166 = getelementptr i8, ptr %v34, i64 8
  %v167 = load i32, ptr %v166, align 1
  %v168 = getelementptr i8, ptr %v34, i64 16
  %v169 = load i32, ptr %v168, align 1
  %v170 = getelementptr i8, ptr %v34, i64 24
  %v171 = load i32, ptr %v170, align 1
  %v172 = getelementptr i8, ptr %v34, i64 32
  %v173 = load i32, ptr %v172, align 1
  %v174 = getelementptr i8, ptr %v34, i64 40
  %v175 = load i32, ptr %v174, align 1
  %v176 = getelementptr i8, ptr %v34, i64 48
  %v177 = load i32, ptr %v176, align 1
  %v178 = getelementptr i8, ptr %v34, i64 56
  %v179 = load double, ptr %v178, align 1
  %v180 = getelementptr i8, ptr %v34, i64 64
  %v181 = load ptr, ptr %v180, align 1
  %v182 = getelementptr i8, ptr %v34, i64 72
  %v183 = load i32, ptr %v182, align 1
  %v184 = getelementptr i8, ptr %v34, i64 80
  %v185 = load ptr, ptr %v184, align 1
  %v186 = getelementptr i8, ptr %v34, i64 88
  %v187 = load i32, ptr %v186, align 1
  %v188 = getelementptr i8, ptr %v34, i64 96
  %v189 = load double, ptr %v188, align 1
  %v190 = getelementptr i8, ptr %v34, i64 104
  %v191 = load ptr, ptr %v190, align 1
  %v192 = getelementptr i8, ptr %v34, i64 112
  %v193 = load i32, ptr %v192, align 1
  call void %v165(i32 %v167, i32 %v169, i32 %v171, i32 %v173, i32 %v175, i32 %v177, double %v179, ptr %v181, i32 %v183, ptr %v185, i32 %v187, double %v189, ptr %v191, i32 %v193)
  br label %b44
b42:
  %v194 = getelementptr i8, ptr %v34, i64 0
  %v195 = load i64, ptr %v194, align 1
  %v196 = inttoptr i64 %v195 to ptr
  %v197 = getelementptr i8, ptr %v34, i64 8
  %v198 = load i32, ptr %v197, align 1
  %v199 = getelementptr i8, ptr %v34, i64 16
  %v200 = load i32, ptr %v199, align 1
  %v201 = getelementptr i8, ptr %v34, i64 24
  %v202 = load i32, ptr %v201, align 1
  %v203 = getelementptr i8, ptr %v34, i64 32
  %v204 = load i64, ptr %v203, align 1
  %v205 = getelementptr i8, ptr %v34, i64 40
  %v206 = load i64, ptr %v205, align 1
  %v207 = getelementptr i8, ptr %v34, i64 48
  %v208 = load i64, ptr %v207, align 1
  %v209 = getelementptr i8, ptr %v34, i64 56
  %v210 = load float, ptr %v209, align 1
  %v211 = getelementptr i8, ptr %v34, i64 64
  %v212 = load ptr, ptr %v211, align 1
  %v213 = getelementptr i8, ptr %v34, i64 72
  %v214 = load i64, ptr %v213, align 1
  %v215 = getelementptr i8, ptr %v34, i64 80
  %v216 = load ptr, ptr %v215, align 1
  %v217 = getelementptr i8, ptr %v34, i64 88
  %v218 = load i64, ptr %v217, align 1
  %v219 = getelementptr i8, ptr %v34, i64 96
  %v220 = load float, ptr %v219, align 1
  %v221 = getelementptr i8, ptr %v34, i64 104
  %v222 = load ptr, ptr %v221, align 1
  %v223 = getelementptr i8, ptr %v34, i64 112
  %v224 = load i64, ptr %v223, align 1
  call void %v196(i32 %v198, i32 %v200, i32 %v202, i64 %v204, i64 %v206, i64 %v208, float %v210, ptr %v212, i64 %v214, ptr %v216, i64 %v218, float %v220, ptr %v222, i64 %v224)
  br label %b44
b43:
  %v225 = getelementptr i8, ptr %v34, i64 0
  %v226 = load i64, ptr %v225, align 1
  %v227 = inttoptr i64 %v226 to ptr
  %v228 = getelementptr i8, ptr %v34, i64 8
  %v229 = load i32, ptr %v228, align 1
  %v230 = getelementptr i8, ptr %v34, i64 16
  %v231 = load i32, ptr %v230, align 1
  %v232 = getelementptr i8, ptr %v34, i64 24
  %v233 = load i32, ptr %v232, align 1
  %v234 = getelementptr i8, ptr %v34, i64 32
  %v235 = load i64, ptr %v234, align 1
  %v236 = getelementptr i8, ptr %v34, i64 40
  %v237 = load i64, ptr %v236, align 1
  %v238 = getelementptr i8, ptr %v34, i64 48
  %v239 = load i64, ptr %v238, align 1
  %v240 = getelementptr i8, ptr %v34, i64 56
  %v241 = load double, ptr %v240, align 1
  %v242 = getelementptr i8, ptr %v34, i64 64
  %v243 = load ptr, ptr %v242, align 1
  %v244 = getelementptr i8, ptr %v34, i64 72
  %v245 = load i64, ptr %v244, align 1
  %v246 = getelementptr i8, ptr %v34, i64 80
  %v247 = load ptr, ptr %v246, align 1
  %v248 = getelementptr i8, ptr %v34, i64 88
  %v249 = load i64, ptr %v248, align 1
  %v250 = getelementptr i8, ptr %v34, i64 96
  %v251 = load double, ptr %v250, align 1
  %v252 = getelementptr i8, ptr %v34, i64 104
  %v253 = load ptr, ptr %v252, align 1
  %v254 = getelementptr i8, ptr %v34, i64 112
  %v255 = load i64, ptr %v254, align 1
  call void %v227(i32 %v229, i32 %v231, i32 %v233, i64 %v235, i64 %v237, i64 %v239, double %v241, ptr %v243, i64 %v245, ptr %v247, i64 %v249, double %v251, ptr %v253, i64 %v255)
  br label %b44
b44:
  call void @llvm.x86.sse.stmxcsr(ptr %v1)
  %v256 = load i32, ptr %v1, align 1
  %v257 = and i32 %v256, %v9
  %v258 = add nsw i64 %v21, 1
  %v259 = icmp ne i32 %v257, 0
  %v260 = select i1 %v259, i64 %v258, i64 %v22
  br label %b18
b20:
  %v261 = icmp eq i64 %v21, %v6
  %v262 = icmp eq i32 %v23, 0
  %v263 = and i1 %v261, %v262
  %v264 = getelementptr i8, ptr %words, i64 32
  %v265 = load i64, ptr %v264, align 1
  %v266 = icmp sgt i64 %v265, 0
  %v267 = and i1 %v263, %v266
  br i1 %v267, label %b268, label %b269
b268:
  %v271 = getelementptr i8, ptr %words, i64 40
  %v272 = load i64, ptr %v271, align 1
  %v273 = inttoptr i64 %v272 to ptr
  %v274 = load i8, ptr %v273, align 1
  %v275 = icmp ne i8 %v274, 0
  br i1 %v275, label %b276, label %b277
b276:
  %v279 = getelementptr i8, ptr %words, i64 32
  %v280 = load i64, ptr %v279, align 1
  %v281 = sub nsw i64 %v280, 1
  %v282 = getelementptr i8, ptr %words, i64 32
  store i64 %v281, ptr %v282, align 1
  %v283 = getelementptr i8, ptr %words, i64 56
  %v284 = load i64, ptr %v283, align 1
  %v285 = inttoptr i64 %v284 to ptr
  %v286 = getelementptr i8, ptr %words, i64 48
  %v287 = load i64, ptr %v286, align 1
  br label %b288
b288:
  %v291 = phi i64 [ 0, %b276 ], [ %v308, %b289 ]
  %v292 = icmp slt i64 %v291, %v287
  br i1 %v292, label %b289, label %b290
b289:
  %v293 = mul nsw i64 %v291, 3
  %v294 = mul nsw i64 %v293, 8
  %v295 = getelementptr i8, ptr %v285, i64 %v294
  %v296 = getelementptr i8, ptr %v295, i64 0
  %v297 = load i64, ptr %v296, align 1
  %v298 = inttoptr i64 %v297 to ptr
  %v299 = getelementptr i8, ptr %v295, i64 8
  %v300 = load i64, ptr %v299, align 1
  %v301 = getelementptr i8, ptr %v295, i64 16
  %v302 = load i64, ptr %v301, align 1
  %v303 = getelementptr i8, ptr %v298, i64 0
  %v304 = load i64, ptr %v303, align 1
  %v305 = add nsw i64 %v304, %v300
  store i64 %v305, ptr %v298, align 1
  %v306 = mul nsw i64 %v300, %v302
  %v307 = getelementptr i8, ptr %v295, i64 8
  store i64 %v306, ptr %v307, align 1
  %v308 = add nsw i64 %v291, 1
  br label %b288
b290:
  br label %b278
b277:
  %v309 = add nsw i64 %v6, 1
  br label %b278
b278:
  %v310 = phi i64 [ 0, %b290 ], [ %v309, %b277 ]
  %v311 = phi i64 [ 1, %b290 ], [ 0, %b277 ]
  br label %b270
b269:
  br label %b270
b270:
  %v312 = phi i64 [ %v310, %b278 ], [ %v21, %b269 ]
  %v313 = phi i64 [ %v311, %b278 ], [ 0, %b269 ]
  br label %b12
b14:
  %v314 = getelementptr i8, ptr %words, i64 16
  store i64 %v15, ptr %v314, align 1
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

