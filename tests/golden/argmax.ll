; Y, full, KernelSpec
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
  %v9 = icmp ne i64 1, 0
  %v10 = getelementptr i64, ptr %args, i64 5
  %v11 = load i64, ptr %v10
  %v12 = inttoptr i64 %v11 to ptr
  %v13 = getelementptr i64, ptr %args, i64 6
  %v14 = load i64, ptr %v13
  %v15 = getelementptr i64, ptr %args, i64 7
  %v16 = load i64, ptr %v15
  %v17 = getelementptr i64, ptr %args, i64 8
  %v18 = load i64, ptr %v17
  %v19 = inttoptr i64 %v18 to ptr
  %v20 = getelementptr i64, ptr %args, i64 9
  %v21 = load i64, ptr %v20
  %v22 = getelementptr i64, ptr %args, i64 10
  %v23 = load i64, ptr %v22
  br label %b24
b24:
  %v27 = phi i64 [ 0, %entry ], [ %v184, %b59 ]
  %v28 = icmp slt i64 %v27, %v2
  br i1 %v28, label %b25, label %b26
b25:
  %v29 = urem i64 %v4, 16
  %v30 = sub i64 %v4, %v29
  br label %b31
b31:
  %v34 = phi i64 [ 0, %b25 ], [ %v56, %b32 ]
  %v35 = phi <16 x float> [ <float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000>, %b25 ], [ %v54, %b32 ]
  %v36 = phi <16 x i64> [ <i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1>, %b25 ], [ %v55, %b32 ]
  %v37 = icmp slt i64 %v34, %v30
  br i1 %v37, label %b32, label %b33
b32:
  %v38 = mul nsw i64 %v27, %v14
  %v39 = mul nsw i64 %v34, %v16
  %v40 = add nsw i64 %v38, %v39
  %v41 = getelementptr i8, ptr %v12, i64 %v40
  %v42 = load <16 x float>, ptr %v41, align 1
  %v43 = add nsw i64 %v34, %v8
  %v44 = insertelement <16 x i64> poison, i64 %v43, i64 0
  %v45 = shufflevector <16 x i64> %v44, <16 x i64> poison, <16 x i32> zeroinitializer
  %v46 = add <16 x i64> %v45, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v47 = icmp slt <16 x i64> %v36, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v48 = fcmp ogt <16 x float> %v42, %v35
  %v49 = fcmp uno <16 x float> %v42, %v42
  %v50 = fcmp ord <16 x float> %v35, %v35
  %v51 = and <16 x i1> %v49, %v50
  %v52 = or <16 x i1> %v48, %v51
  %v53 = or <16 x i1> %v52, %v47
  %v54 = select <16 x i1> %v53, <16 x float> %v42, <16 x float> %v35
  %v55 = select <16 x i1> %v53, <16 x i64> %v46, <16 x i64> %v36
  %v56 = add nsw i64 %v34, 16
  br label %b31
b33:
  br label %b57
b57:
  %v60 = phi i64 [ %v30, %b33 ], [ %v91, %b58 ]
  %v61 = phi <16 x float> [ %v35, %b33 ], [ %v89, %b58 ]
  %v62 = phi <16 x i64> [ %v36, %b33 ], [ %v90, %b58 ]
  %v63 = icmp slt i64 %v60, %v4
  br i1 %v63, label %b58, label %b59
b58:
  %v64 = sub i64 %v4, %v60
  %v65 = insertelement <16 x i64> poison, i64 %v64, i64 0
  %v66 = shufflevector <16 x i64> %v65, <16 x i64> poison, <16 x i32> zeroinitializer
  %v67 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v66
  %v68 = mul nsw i64 %v27, %v14
  %v69 = mul nsw i64 %v60, %v16
  %v70 = add nsw i64 %v68, %v69
  %v71 = getelementptr i8, ptr %v12, i64 %v70
  %v72 = load float, ptr %v71, align 1
  %v73 = insertelement <16 x float> poison, float %v72, i64 0
  %v74 = shufflevector <16 x float> %v73, <16 x float> poison, <16 x i32> zeroinitializer
  %v75 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v71, i32 1, <16 x i1> %v67, <16 x float> %v74)
  %v76 = add nsw i64 %v60, %v8
  %v77 = insertelement <16 x i64> poison, i64 %v76, i64 0
  %v78 = shufflevector <16 x i64> %v77, <16 x i64> poison, <16 x i32> zeroinitializer
  %v79 = add <16 x i64> %v78, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v80 = icmp slt <16 x i64> %v62, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v81 = fcmp ogt <16 x float> %v75, %v61
  %v82 = fcmp uno <16 x float> %v75, %v75
  %v83 = fcmp ord <16 x float> %v61, %v61
  %v84 = and <16 x i1> %v82, %v83
  %v85 = or <16 x i1> %v81, %v84
  %v86 = or <16 x i1> %v85, %v80
  %v87 = select <16 x i1> %v86, <16 x float> %v75, <16 x float> %v61
  %v88 = select <16 x i1> %v86, <16 x i64> %v79, <16 x i64> %v62
  %v89 = select <16 x i1> %v67, <16 x float> %v87, <16 x float> %v61
  %v90 = select <16 x i1> %v67, <16 x i64> %v88, <16 x i64> %v62
  %v91 = add nsw i64 %v60, 16
  br label %b57
b59:
  %v92 = shufflevector <16 x float> %v61, <16 x float> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v93 = shufflevector <16 x i64> %v62, <16 x i64> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v94 = fcmp ueq <16 x float> %v61, %v92
  %v95 = fcmp uno <16 x float> %v61, %v61
  %v96 = fcmp uno <16 x float> %v92, %v92
  %v97 = xor <16 x i1> %v95, %v96
  %v98 = xor <16 x i1> %v97, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v99 = and <16 x i1> %v94, %v98
  %v100 = icmp ult <16 x i64> %v93, %v62
  %v101 = and <16 x i1> %v99, %v100
  %v102 = icmp slt <16 x i64> %v62, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v103 = icmp sge <16 x i64> %v93, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v104 = fcmp ogt <16 x float> %v92, %v61
  %v105 = fcmp uno <16 x float> %v92, %v92
  %v106 = fcmp ord <16 x float> %v61, %v61
  %v107 = and <16 x i1> %v105, %v106
  %v108 = or <16 x i1> %v104, %v107
  %v109 = or <16 x i1> %v108, %v101
  %v110 = or <16 x i1> %v109, %v102
  %v111 = and <16 x i1> %v110, %v103
  %v112 = select <16 x i1> %v111, <16 x float> %v92, <16 x float> %v61
  %v113 = select <16 x i1> %v111, <16 x i64> %v93, <16 x i64> %v62
  %v114 = shufflevector <16 x float> %v112, <16 x float> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v115 = shufflevector <16 x i64> %v113, <16 x i64> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v116 = fcmp ueq <16 x float> %v112, %v114
  %v117 = fcmp uno <16 x float> %v112, %v112
  %v118 = fcmp uno <16 x float> %v114, %v114
  %v119 = xor <16 x i1> %v117, %v118
  %v120 = xor <16 x i1> %v119, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v121 = and <16 x i1> %v116, %v120
  %v122 = icmp ult <16 x i64> %v115, %v113
  %v123 = and <16 x i1> %v121, %v122
  %v124 = icmp slt <16 x i64> %v113, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v125 = icmp sge <16 x i64> %v115, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v126 = fcmp ogt <16 x float> %v114, %v112
  %v127 = fcmp uno <16 x float> %v114, %v114
  %v128 = fcmp ord <16 x float> %v112, %v112
  %v129 = and <16 x i1> %v127, %v128
  %v130 = or <16 x i1> %v126, %v129
  %v131 = or <16 x i1> %v130, %v123
  %v132 = or <16 x i1> %v131, %v124
  %v133 = and <16 x i1> %v132, %v125
  %v134 = select <16 x i1> %v133, <16 x float> %v114, <16 x float> %v112
  %v135 = select <16 x i1> %v133, <16 x i64> %v115, <16 x i64> %v113
  %v136 = shufflevector <16 x float> %v134, <16 x float> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v137 = shufflevector <16 x i64> %v135, <16 x i64> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v138 = fcmp ueq <16 x float> %v134, %v136
  %v139 = fcmp uno <16 x float> %v134, %v134
  %v140 = fcmp uno <16 x float> %v136, %v136
  %v141 = xor <16 x i1> %v139, %v140
  %v142 = xor <16 x i1> %v141, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v143 = and <16 x i1> %v138, %v142
  %v144 = icmp ult <16 x i64> %v137, %v135
  %v145 = and <16 x i1> %v143, %v144
  %v146 = icmp slt <16 x i64> %v135, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v147 = icmp sge <16 x i64> %v137, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v148 = fcmp ogt <16 x float> %v136, %v134
  %v149 = fcmp uno <16 x float> %v136, %v136
  %v150 = fcmp ord <16 x float> %v134, %v134
  %v151 = and <16 x i1> %v149, %v150
  %v152 = or <16 x i1> %v148, %v151
  %v153 = or <16 x i1> %v152, %v145
  %v154 = or <16 x i1> %v153, %v146
  %v155 = and <16 x i1> %v154, %v147
  %v156 = select <16 x i1> %v155, <16 x float> %v136, <16 x float> %v134
  %v157 = select <16 x i1> %v155, <16 x i64> %v137, <16 x i64> %v135
  %v158 = shufflevector <16 x float> %v156, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v159 = shufflevector <16 x i64> %v157, <16 x i64> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v160 = fcmp ueq <16 x float> %v156, %v158
  %v161 = fcmp uno <16 x float> %v156, %v156
  %v162 = fcmp uno <16 x float> %v158, %v158
  %v163 = xor <16 x i1> %v161, %v162
  %v164 = xor <16 x i1> %v163, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v165 = and <16 x i1> %v160, %v164
  %v166 = icmp ult <16 x i64> %v159, %v157
  %v167 = and <16 x i1> %v165, %v166
  %v168 = icmp slt <16 x i64> %v157, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v169 = icmp sge <16 x i64> %v159, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v170 = fcmp ogt <16 x float> %v158, %v156
  %v171 = fcmp uno <16 x float> %v158, %v158
  %v172 = fcmp ord <16 x float> %v156, %v156
  %v173 = and <16 x i1> %v171, %v172
  %v174 = or <16 x i1> %v170, %v173
  %v175 = or <16 x i1> %v174, %v167
  %v176 = or <16 x i1> %v175, %v168
  %v177 = and <16 x i1> %v176, %v169
  %v178 = select <16 x i1> %v177, <16 x float> %v158, <16 x float> %v156
  %v179 = select <16 x i1> %v177, <16 x i64> %v159, <16 x i64> %v157
  %v180 = extractelement <16 x float> %v178, i64 0
  %v181 = extractelement <16 x i64> %v179, i64 0
  %v182 = mul nsw i64 %v27, %v21
  %v183 = getelementptr i8, ptr %v19, i64 %v182
  store i64 %v181, ptr %v183, align 1
  %v184 = add nsw i64 %v27, 1
  br label %b24
b26:
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
!0 = !{i32 1}

; Y, accumulate, KernelSpec
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
  %v11 = icmp ne i64 %v10, 0
  %v12 = getelementptr i64, ptr %args, i64 5
  %v13 = load i64, ptr %v12
  %v14 = inttoptr i64 %v13 to ptr
  %v15 = getelementptr i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15
  %v17 = getelementptr i64, ptr %args, i64 7
  %v18 = load i64, ptr %v17
  %v19 = getelementptr i64, ptr %args, i64 8
  %v20 = load i64, ptr %v19
  %v21 = inttoptr i64 %v20 to ptr
  %v22 = getelementptr i64, ptr %args, i64 9
  %v23 = load i64, ptr %v22
  %v24 = getelementptr i64, ptr %args, i64 10
  %v25 = load i64, ptr %v24
  %v26 = getelementptr i64, ptr %args, i64 11
  %v27 = load i64, ptr %v26
  %v28 = inttoptr i64 %v27 to ptr
  %v29 = getelementptr i64, ptr %args, i64 12
  %v30 = load i64, ptr %v29
  %v31 = getelementptr i64, ptr %args, i64 13
  %v32 = load i64, ptr %v31
  br label %b33
b33:
  %v36 = phi i64 [ 0, %entry ], [ %v226, %b193 ]
  %v37 = icmp slt i64 %v36, %v2
  br i1 %v37, label %b34, label %b35
b34:
  %v38 = urem i64 %v4, 16
  %v39 = sub i64 %v4, %v38
  br label %b40
b40:
  %v43 = phi i64 [ 0, %b34 ], [ %v65, %b41 ]
  %v44 = phi <16 x float> [ <float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000, float 0xFFF0000000000000>, %b34 ], [ %v63, %b41 ]
  %v45 = phi <16 x i64> [ <i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1>, %b34 ], [ %v64, %b41 ]
  %v46 = icmp slt i64 %v43, %v39
  br i1 %v46, label %b41, label %b42
b41:
  %v47 = mul nsw i64 %v36, %v16
  %v48 = mul nsw i64 %v43, %v18
  %v49 = add nsw i64 %v47, %v48
  %v50 = getelementptr i8, ptr %v14, i64 %v49
  %v51 = load <16 x float>, ptr %v50, align 1
  %v52 = add nsw i64 %v43, %v8
  %v53 = insertelement <16 x i64> poison, i64 %v52, i64 0
  %v54 = shufflevector <16 x i64> %v53, <16 x i64> poison, <16 x i32> zeroinitializer
  %v55 = add <16 x i64> %v54, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v56 = icmp slt <16 x i64> %v45, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v57 = fcmp ogt <16 x float> %v51, %v44
  %v58 = fcmp uno <16 x float> %v51, %v51
  %v59 = fcmp ord <16 x float> %v44, %v44
  %v60 = and <16 x i1> %v58, %v59
  %v61 = or <16 x i1> %v57, %v60
  %v62 = or <16 x i1> %v61, %v56
  %v63 = select <16 x i1> %v62, <16 x float> %v51, <16 x float> %v44
  %v64 = select <16 x i1> %v62, <16 x i64> %v55, <16 x i64> %v45
  %v65 = add nsw i64 %v43, 16
  br label %b40
b42:
  br label %b66
b66:
  %v69 = phi i64 [ %v39, %b42 ], [ %v100, %b67 ]
  %v70 = phi <16 x float> [ %v44, %b42 ], [ %v98, %b67 ]
  %v71 = phi <16 x i64> [ %v45, %b42 ], [ %v99, %b67 ]
  %v72 = icmp slt i64 %v69, %v4
  br i1 %v72, label %b67, label %b68
b67:
  %v73 = sub i64 %v4, %v69
  %v74 = insertelement <16 x i64> poison, i64 %v73, i64 0
  %v75 = shufflevector <16 x i64> %v74, <16 x i64> poison, <16 x i32> zeroinitializer
  %v76 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v75
  %v77 = mul nsw i64 %v36, %v16
  %v78 = mul nsw i64 %v69, %v18
  %v79 = add nsw i64 %v77, %v78
  %v80 = getelementptr i8, ptr %v14, i64 %v79
  %v81 = load float, ptr %v80, align 1
  %v82 = insertelement <16 x float> poison, float %v81, i64 0
  %v83 = shufflevector <16 x float> %v82, <16 x float> poison, <16 x i32> zeroinitializer
  %v84 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v80, i32 1, <16 x i1> %v76, <16 x float> %v83)
  %v85 = add nsw i64 %v69, %v8
  %v86 = insertelement <16 x i64> poison, i64 %v85, i64 0
  %v87 = shufflevector <16 x i64> %v86, <16 x i64> poison, <16 x i32> zeroinitializer
  %v88 = add <16 x i64> %v87, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>
  %v89 = icmp slt <16 x i64> %v71, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v90 = fcmp ogt <16 x float> %v84, %v70
  %v91 = fcmp uno <16 x float> %v84, %v84
  %v92 = fcmp ord <16 x float> %v70, %v70
  %v93 = and <16 x i1> %v91, %v92
  %v94 = or <16 x i1> %v90, %v93
  %v95 = or <16 x i1> %v94, %v89
  %v96 = select <16 x i1> %v95, <16 x float> %v84, <16 x float> %v70
  %v97 = select <16 x i1> %v95, <16 x i64> %v88, <16 x i64> %v71
  %v98 = select <16 x i1> %v76, <16 x float> %v96, <16 x float> %v70
  %v99 = select <16 x i1> %v76, <16 x i64> %v97, <16 x i64> %v71
  %v100 = add nsw i64 %v69, 16
  br label %b66
b68:
  %v101 = shufflevector <16 x float> %v70, <16 x float> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v102 = shufflevector <16 x i64> %v71, <16 x i64> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v103 = fcmp ueq <16 x float> %v70, %v101
  %v104 = fcmp uno <16 x float> %v70, %v70
  %v105 = fcmp uno <16 x float> %v101, %v101
  %v106 = xor <16 x i1> %v104, %v105
  %v107 = xor <16 x i1> %v106, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v108 = and <16 x i1> %v103, %v107
  %v109 = icmp ult <16 x i64> %v102, %v71
  %v110 = and <16 x i1> %v108, %v109
  %v111 = icmp slt <16 x i64> %v71, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v112 = icmp sge <16 x i64> %v102, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v113 = fcmp ogt <16 x float> %v101, %v70
  %v114 = fcmp uno <16 x float> %v101, %v101
  %v115 = fcmp ord <16 x float> %v70, %v70
  %v116 = and <16 x i1> %v114, %v115
  %v117 = or <16 x i1> %v113, %v116
  %v118 = or <16 x i1> %v117, %v110
  %v119 = or <16 x i1> %v118, %v111
  %v120 = and <16 x i1> %v119, %v112
  %v121 = select <16 x i1> %v120, <16 x float> %v101, <16 x float> %v70
  %v122 = select <16 x i1> %v120, <16 x i64> %v102, <16 x i64> %v71
  %v123 = shufflevector <16 x float> %v121, <16 x float> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v124 = shufflevector <16 x i64> %v122, <16 x i64> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v125 = fcmp ueq <16 x float> %v121, %v123
  %v126 = fcmp uno <16 x float> %v121, %v121
  %v127 = fcmp uno <16 x float> %v123, %v123
  %v128 = xor <16 x i1> %v126, %v127
  %v129 = xor <16 x i1> %v128, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v130 = and <16 x i1> %v125, %v129
  %v131 = icmp ult <16 x i64> %v124, %v122
  %v132 = and <16 x i1> %v130, %v131
  %v133 = icmp slt <16 x i64> %v122, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v134 = icmp sge <16 x i64> %v124, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v135 = fcmp ogt <16 x float> %v123, %v121
  %v136 = fcmp uno <16 x float> %v123, %v123
  %v137 = fcmp ord <16 x float> %v121, %v121
  %v138 = and <16 x i1> %v136, %v137
  %v139 = or <16 x i1> %v135, %v138
  %v140 = or <16 x i1> %v139, %v132
  %v141 = or <16 x i1> %v140, %v133
  %v142 = and <16 x i1> %v141, %v134
  %v143 = select <16 x i1> %v142, <16 x float> %v123, <16 x float> %v121
  %v144 = select <16 x i1> %v142, <16 x i64> %v124, <16 x i64> %v122
  %v145 = shufflevector <16 x float> %v143, <16 x float> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v146 = shufflevector <16 x i64> %v144, <16 x i64> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v147 = fcmp ueq <16 x float> %v143, %v145
  %v148 = fcmp uno <16 x float> %v143, %v143
  %v149 = fcmp uno <16 x float> %v145, %v145
  %v150 = xor <16 x i1> %v148, %v149
  %v151 = xor <16 x i1> %v150, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v152 = and <16 x i1> %v147, %v151
  %v153 = icmp ult <16 x i64> %v146, %v144
  %v154 = and <16 x i1> %v152, %v153
  %v155 = icmp slt <16 x i64> %v144, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v156 = icmp sge <16 x i64> %v146, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v157 = fcmp ogt <16 x float> %v145, %v143
  %v158 = fcmp uno <16 x float> %v145, %v145
  %v159 = fcmp ord <16 x float> %v143, %v143
  %v160 = and <16 x i1> %v158, %v159
  %v161 = or <16 x i1> %v157, %v160
  %v162 = or <16 x i1> %v161, %v154
  %v163 = or <16 x i1> %v162, %v155
  %v164 = and <16 x i1> %v163, %v156
  %v165 = select <16 x i1> %v164, <16 x float> %v145, <16 x float> %v143
  %v166 = select <16 x i1> %v164, <16 x i64> %v146, <16 x i64> %v144
  %v167 = shufflevector <16 x float> %v165, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v168 = shufflevector <16 x i64> %v166, <16 x i64> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v169 = fcmp ueq <16 x float> %v165, %v167
  %v170 = fcmp uno <16 x float> %v165, %v165
  %v171 = fcmp uno <16 x float> %v167, %v167
  %v172 = xor <16 x i1> %v170, %v171
  %v173 = xor <16 x i1> %v172, <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>
  %v174 = and <16 x i1> %v169, %v173
  %v175 = icmp ult <16 x i64> %v168, %v166
  %v176 = and <16 x i1> %v174, %v175
  %v177 = icmp slt <16 x i64> %v166, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v178 = icmp sge <16 x i64> %v168, <i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0>
  %v179 = fcmp ogt <16 x float> %v167, %v165
  %v180 = fcmp uno <16 x float> %v167, %v167
  %v181 = fcmp ord <16 x float> %v165, %v165
  %v182 = and <16 x i1> %v180, %v181
  %v183 = or <16 x i1> %v179, %v182
  %v184 = or <16 x i1> %v183, %v176
  %v185 = or <16 x i1> %v184, %v177
  %v186 = and <16 x i1> %v185, %v178
  %v187 = select <16 x i1> %v186, <16 x float> %v167, <16 x float> %v165
  %v188 = select <16 x i1> %v186, <16 x i64> %v168, <16 x i64> %v166
  %v189 = extractelement <16 x float> %v187, i64 0
  %v190 = extractelement <16 x i64> %v188, i64 0
  br i1 %v11, label %b191, label %b192
b191:
  br label %b193
b192:
  %v194 = mul nsw i64 %v36, %v23
  %v195 = getelementptr i8, ptr %v21, i64 %v194
  %v196 = load float, ptr %v195, align 1
  %v197 = mul nsw i64 %v36, %v30
  %v198 = getelementptr i8, ptr %v28, i64 %v197
  %v199 = load i64, ptr %v198, align 1
  %v200 = fcmp ueq float %v196, %v189
  %v201 = fcmp uno float %v196, %v196
  %v202 = fcmp uno float %v189, %v189
  %v203 = xor i1 %v201, %v202
  %v204 = xor i1 %v203, 1
  %v205 = and i1 %v200, %v204
  %v206 = icmp ult i64 %v190, %v199
  %v207 = and i1 %v205, %v206
  %v208 = icmp slt i64 %v199, 0
  %v209 = icmp sge i64 %v190, 0
  %v210 = fcmp ogt float %v189, %v196
  %v211 = fcmp uno float %v189, %v189
  %v212 = fcmp ord float %v196, %v196
  %v213 = and i1 %v211, %v212
  %v214 = or i1 %v210, %v213
  %v215 = or i1 %v214, %v207
  %v216 = or i1 %v215, %v208
  %v217 = and i1 %v216, %v209
  %v218 = select i1 %v217, float %v189, float %v196
  %v219 = select i1 %v217, i64 %v190, i64 %v199
  br label %b193
b193:
  %v220 = phi float [ %v189, %b191 ], [ %v218, %b192 ]
  %v221 = phi i64 [ %v190, %b191 ], [ %v219, %b192 ]
  %v222 = mul nsw i64 %v36, %v23
  %v223 = getelementptr i8, ptr %v21, i64 %v222
  store float %v220, ptr %v223, align 1
  %v224 = mul nsw i64 %v36, %v30
  %v225 = getelementptr i8, ptr %v28, i64 %v224
  store i64 %v221, ptr %v225, align 1
  %v226 = add nsw i64 %v36, 1
  br label %b33
b35:
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
!0 = !{i32 1}

; Y, finalize, KernelSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = getelementptr i64, ptr %args, i64 0
  %v2 = load i64, ptr %v1
  %v3 = getelementptr i64, ptr %args, i64 1
  %v4 = load i64, ptr %v3
  %v5 = icmp ne i64 1, 0
  %v6 = getelementptr i64, ptr %args, i64 3
  %v7 = load i64, ptr %v6
  %v8 = inttoptr i64 %v7 to ptr
  %v9 = getelementptr i64, ptr %args, i64 4
  %v10 = load i64, ptr %v9
  %v11 = getelementptr i64, ptr %args, i64 5
  %v12 = load i64, ptr %v11
  %v13 = inttoptr i64 %v12 to ptr
  %v14 = getelementptr i64, ptr %args, i64 6
  %v15 = load i64, ptr %v14
  %v16 = getelementptr i64, ptr %args, i64 7
  %v17 = load i64, ptr %v16
  %v18 = inttoptr i64 %v17 to ptr
  %v19 = getelementptr i64, ptr %args, i64 8
  %v20 = load i64, ptr %v19
  %v21 = urem i64 %v2, 16
  %v22 = sub i64 %v2, %v21
  br label %b23
b23:
  %v26 = phi i64 [ 0, %entry ], [ %v33, %b24 ]
  %v27 = icmp slt i64 %v26, %v22
  br i1 %v27, label %b24, label %b25
b24:
  %v28 = mul nsw i64 %v26, %v15
  %v29 = getelementptr i8, ptr %v13, i64 %v28
  %v30 = load <16 x i64>, ptr %v29, align 1
  %v31 = mul nsw i64 %v26, %v20
  %v32 = getelementptr i8, ptr %v18, i64 %v31
  store <16 x i64> %v30, ptr %v32, align 1
  %v33 = add nsw i64 %v26, 16
  br label %b23
b25:
  %v34 = sub i64 %v2, %v22
  %v35 = icmp sgt i64 %v34, 0
  %v36 = add i64 %v22, 16
  %v37 = select i1 %v35, i64 %v36, i64 %v22
  %v38 = insertelement <16 x i64> poison, i64 %v34, i64 0
  %v39 = shufflevector <16 x i64> %v38, <16 x i64> poison, <16 x i32> zeroinitializer
  %v40 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v39
  br label %b41
b41:
  %v44 = phi i64 [ %v22, %b25 ], [ %v54, %b42 ]
  %v45 = icmp slt i64 %v44, %v37
  br i1 %v45, label %b42, label %b43
b42:
  %v46 = mul nsw i64 %v44, %v15
  %v47 = getelementptr i8, ptr %v13, i64 %v46
  %v48 = load i64, ptr %v47, align 1
  %v49 = insertelement <16 x i64> poison, i64 %v48, i64 0
  %v50 = shufflevector <16 x i64> %v49, <16 x i64> poison, <16 x i32> zeroinitializer
  %v51 = call <16 x i64> @llvm.masked.load.v16i64.p0(ptr %v47, i32 1, <16 x i1> %v40, <16 x i64> %v50)
  %v52 = mul nsw i64 %v44, %v20
  %v53 = getelementptr i8, ptr %v18, i64 %v52
  call void @llvm.masked.store.v16i64.p0(<16 x i64> %v51, ptr %v53, i32 1, <16 x i1> %v40)
  %v54 = add nsw i64 %v44, 16
  br label %b41
b43:
  ret void
}
declare <16 x i64> @llvm.masked.load.v16i64.p0(ptr, i32, <16 x i1>, <16 x i64>)
declare void @llvm.masked.store.v16i64.p0(<16 x i64>, ptr, i32, <16 x i1>)
!0 = !{i32 1}

