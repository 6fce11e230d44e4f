; s, full, KernelSpec
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
  %v16 = urem i64 %v2, 64
  %v17 = sub i64 %v2, %v16
  br label %b18
b18:
  %v21 = phi i64 [ 0, %entry ], [ %v82, %b31 ]
  %v22 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v78, %b31 ]
  %v23 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v79, %b31 ]
  %v24 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v80, %b31 ]
  %v25 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v81, %b31 ]
  %v26 = icmp slt i64 %v21, %v17
  br i1 %v26, label %b19, label %b20
b19:
  %v27 = add i64 %v21, 262144
  %v28 = call i64 @llvm.smin.i64(i64 %v27, i64 %v17)
  br label %b29
b29:
  %v32 = phi i64 [ %v21, %b19 ], [ %v77, %b42 ]
  %v33 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b19 ], [ %v73, %b42 ]
  %v34 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b19 ], [ %v74, %b42 ]
  %v35 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b19 ], [ %v75, %b42 ]
  %v36 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b19 ], [ %v76, %b42 ]
  %v37 = icmp slt i64 %v32, %v28
  br i1 %v37, label %b30, label %b31
b30:
  %v38 = add i64 %v32, 4096
  %v39 = call i64 @llvm.smin.i64(i64 %v38, i64 %v28)
  br label %b40
b40:
  %v43 = phi i64 [ %v32, %b30 ], [ %v72, %b41 ]
  %v44 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b30 ], [ %v53, %b41 ]
  %v45 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b30 ], [ %v59, %b41 ]
  %v46 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b30 ], [ %v65, %b41 ]
  %v47 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b30 ], [ %v71, %b41 ]
  %v48 = icmp slt i64 %v43, %v39
  br i1 %v48, label %b41, label %b42
b41:
  %v49 = mul nsw i64 %v43, %v10
  %v50 = getelementptr i8, ptr %v8, i64 %v49
  %v51 = load <16 x float>, ptr %v50, align 1
  %v52 = fmul contract <16 x float> %v51, %v51
  %v53 = fadd contract <16 x float> %v44, %v52
  %v54 = add nsw i64 %v43, 16
  %v55 = mul nsw i64 %v54, %v10
  %v56 = getelementptr i8, ptr %v8, i64 %v55
  %v57 = load <16 x float>, ptr %v56, align 1
  %v58 = fmul contract <16 x float> %v57, %v57
  %v59 = fadd contract <16 x float> %v45, %v58
  %v60 = add nsw i64 %v43, 32
  %v61 = mul nsw i64 %v60, %v10
  %v62 = getelementptr i8, ptr %v8, i64 %v61
  %v63 = load <16 x float>, ptr %v62, align 1
  %v64 = fmul contract <16 x float> %v63, %v63
  %v65 = fadd contract <16 x float> %v46, %v64
  %v66 = add nsw i64 %v43, 48
  %v67 = mul nsw i64 %v66, %v10
  %v68 = getelementptr i8, ptr %v8, i64 %v67
  %v69 = load <16 x float>, ptr %v68, align 1
  %v70 = fmul contract <16 x float> %v69, %v69
  %v71 = fadd contract <16 x float> %v47, %v70
  %v72 = add nsw i64 %v43, 64
  br label %b40
b42:
  %v73 = fadd contract <16 x float> %v33, %v44
  %v74 = fadd contract <16 x float> %v34, %v45
  %v75 = fadd contract <16 x float> %v35, %v46
  %v76 = fadd contract <16 x float> %v36, %v47
  %v77 = add nsw i64 %v32, 4096
  br label %b29
b31:
  %v78 = fadd contract <16 x float> %v22, %v33
  %v79 = fadd contract <16 x float> %v23, %v34
  %v80 = fadd contract <16 x float> %v24, %v35
  %v81 = fadd contract <16 x float> %v25, %v36
  %v82 = add nsw i64 %v21, 262144
  br label %b18
b20:
  br label %b83
b83:
  %v86 = phi i64 [ %v17, %b20 ], [ %v102, %b84 ]
  %v87 = phi <16 x float> [ %v22, %b20 ], [ %v101, %b84 ]
  %v88 = icmp slt i64 %v86, %v2
  br i1 %v88, label %b84, label %b85
b84:
  %v89 = sub i64 %v2, %v86
  %v90 = insertelement <16 x i64> poison, i64 %v89, i64 0
  %v91 = shufflevector <16 x i64> %v90, <16 x i64> poison, <16 x i32> zeroinitializer
  %v92 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v91
  %v93 = mul nsw i64 %v86, %v10
  %v94 = getelementptr i8, ptr %v8, i64 %v93
  %v95 = load float, ptr %v94, align 1
  %v96 = insertelement <16 x float> poison, float %v95, i64 0
  %v97 = shufflevector <16 x float> %v96, <16 x float> poison, <16 x i32> zeroinitializer
  %v98 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v94, i32 1, <16 x i1> %v92, <16 x float> %v97)
  %v99 = fmul contract <16 x float> %v98, %v98
  %v100 = fadd contract <16 x float> %v87, %v99
  %v101 = select <16 x i1> %v92, <16 x float> %v100, <16 x float> %v87
  %v102 = add nsw i64 %v86, 16
  br label %b83
b85:
  %v103 = fadd contract <16 x float> %v87, %v23
  %v104 = fadd contract <16 x float> %v103, %v24
  %v105 = fadd contract <16 x float> %v104, %v25
  %v106 = shufflevector <16 x float> %v105, <16 x float> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v107 = fadd contract <16 x float> %v105, %v106
  %v108 = shufflevector <16 x float> %v107, <16 x float> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v109 = fadd contract <16 x float> %v107, %v108
  %v110 = shufflevector <16 x float> %v109, <16 x float> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v111 = fadd contract <16 x float> %v109, %v110
  %v112 = shufflevector <16 x float> %v111, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v113 = fadd contract <16 x float> %v111, %v112
  %v114 = extractelement <16 x float> %v113, i64 0
  store float %v114, ptr %v13, align 1
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
!0 = !{i32 1}

; s, accumulate, KernelSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = getelementptr i64, ptr %args, i64 0
  %v2 = load i64, ptr %v1
  %v3 = getelementptr i64, ptr %args, i64 1
  %v4 = load i64, ptr %v3
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = icmp ne i64 %v6, 0
  %v8 = getelementptr i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8
  %v10 = inttoptr i64 %v9 to ptr
  %v11 = getelementptr i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11
  %v13 = getelementptr i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13
  %v15 = inttoptr i64 %v14 to ptr
  %v16 = getelementptr i64, ptr %args, i64 6
  %v17 = load i64, ptr %v16
  %v18 = urem i64 %v2, 64
  %v19 = sub i64 %v2, %v18
  br label %b20
b20:
  %v23 = phi i64 [ 0, %entry ], [ %v84, %b33 ]
  %v24 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v80, %b33 ]
  %v25 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v81, %b33 ]
  %v26 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v82, %b33 ]
  %v27 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %entry ], [ %v83, %b33 ]
  %v28 = icmp slt i64 %v23, %v19
  br i1 %v28, label %b21, label %b22
b21:
  %v29 = add i64 %v23, 262144
  %v30 = call i64 @llvm.smin.i64(i64 %v29, i64 %v19)
  br label %b31
b31:
  %v34 = phi i64 [ %v23, %b21 ], [ %v79, %b44 ]
  %v35 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b21 ], [ %v75, %b44 ]
  %v36 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b21 ], [ %v76, %b44 ]
  %v37 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b21 ], [ %v77, %b44 ]
  %v38 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b21 ], [ %v78, %b44 ]
  %v39 = icmp slt i64 %v34, %v30
  br i1 %v39, label %b32, label %b33
b32:
  %v40 = add i64 %v34, 4096
  %v41 = call i64 @llvm.smin.i64(i64 %v40, i64 %v30)
  br label %b42
b42:
  %v45 = phi i64 [ %v34, %b32 ], [ %v74, %b43 ]
  %v46 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b32 ], [ %v55, %b43 ]
  %v47 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b32 ], [ %v61, %b43 ]
  %v48 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b32 ], [ %v67, %b43 ]
  %v49 = phi <16 x float> [ <float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000, float 0x0000000000000000>, %b32 ], [ %v73, %b43 ]
  %v50 = icmp slt i64 %v45, %v41
  br i1 %v50, label %b43, label %b44
b43:
  %v51 = mul nsw i64 %v45, %v12
  %v52 = getelementptr i8, ptr %v10, i64 %v51
  %v53 = load <16 x float>, ptr %v52, align 1
  %v54 = fmul contract <16 x float> %v53, %v53
  %v55 = fadd contract <16 x float> %v46, %v54
  %v56 = add nsw i64 %v45, 16
  %v57 = mul nsw i64 %v56, %v12
  %v58 = getelementptr i8, ptr %v10, i64 %v57
  %v59 = load <16 x float>, ptr %v58, align 1
  %v60 = fmul contract <16 x float> %v59, %v59
  %v61 = fadd contract <16 x float> %v47, %v60
  %v62 = add nsw i64 %v45, 32
  %v63 = mul nsw i64 %v62, %v12
  %v64 = getelementptr i8, ptr %v10, i64 %v63
  %v65 = load <16 x float>, ptr %v64, align 1
  %v66 = fmul contract <16 x float> %v65, %v65
  %v67 = fadd contract <16 x float> %v48, %v66
  %v68 = add nsw i64 %v45, 48
  %v69 = mul nsw i64 %v68, %v12
  %v70 = getelementptr i8, ptr %v10, i64 %v69
  %v71 = load <16 x float>, ptr %v70, align 1
  %v72 = fmul contract <16 x float> %v71, %v71
  %v73 = fadd contract <16 x float> %v49, %v72
  %v74 = add nsw i64 %v45, 64
  br label %b42
b44:
  %v75 = fadd contract <16 x float> %v35, %v46
  %v76 = fadd contract <16 x float> %v36, %v47
  %v77 = fadd contract <16 x float> %v37, %v48
  %v78 = fadd contract <16 x float> %v38, %v49
  %v79 = add nsw i64 %v34, 4096
  br label %b31
b33:
  %v80 = fadd contract <16 x float> %v24, %v35
  %v81 = fadd contract <16 x float> %v25, %v36
  %v82 = fadd contract <16 x float> %v26, %v37
  %v83 = fadd contract <16 x float> %v27, %v38
  %v84 = add nsw i64 %v23, 262144
  br label %b20
b22:
  br label %b85
b85:
  %v88 = phi i64 [ %v19, %b22 ], [ %v104, %b86 ]
  %v89 = phi <16 x float> [ %v24, %b22 ], [ %v103, %b86 ]
  %v90 = icmp slt i64 %v88, %v2
  br i1 %v90, label %b86, label %b87
b86:
  %v91 = sub i64 %v2, %v88
  %v92 = insertelement <16 x i64> poison, i64 %v91, i64 0
  %v93 = shufflevector <16 x i64> %v92, <16 x i64> poison, <16 x i32> zeroinitializer
  %v94 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v93
  %v95 = mul nsw i64 %v88, %v12
  %v96 = getelementptr i8, ptr %v10, i64 %v95
  %v97 = load float, ptr %v96, align 1
  %v98 = insertelement <16 x float> poison, float %v97, i64 0
  %v99 = shufflevector <16 x float> %v98, <16 x float> poison, <16 x i32> zeroinitializer
  %v100 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v96, i32 1, <16 x i1> %v94, <16 x float> %v99)
  %v101 = fmul contract <16 x float> %v100, %v100
  %v102 = fadd contract <16 x float> %v89, %v101
  %v103 = select <16 x i1> %v94, <16 x float> %v102, <16 x float> %v89
  %v104 = add nsw i64 %v88, 16
  br label %b85
b87:
  %v105 = fadd contract <16 x float> %v89, %v25
  %v106 = fadd contract <16 x float> %v105, %v26
  %v107 = fadd contract <16 x float> %v106, %v27
  %v108 = shufflevector <16 x float> %v107, <16 x float> poison, <16 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v109 = fadd contract <16 x float> %v107, %v108
  %v110 = shufflevector <16 x float> %v109, <16 x float> poison, <16 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3, i32 12, i32 13, i32 14, i32 15, i32 8, i32 9, i32 10, i32 11>
  %v111 = fadd contract <16 x float> %v109, %v110
  %v112 = shufflevector <16 x float> %v111, <16 x float> poison, <16 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5, i32 10, i32 11, i32 8, i32 9, i32 14, i32 15, i32 12, i32 13>
  %v113 = fadd contract <16 x float> %v111, %v112
  %v114 = shufflevector <16 x float> %v113, <16 x float> poison, <16 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6, i32 9, i32 8, i32 11, i32 10, i32 13, i32 12, i32 15, i32 14>
  %v115 = fadd contract <16 x float> %v113, %v114
  %v116 = extractelement <16 x float> %v115, i64 0
  br i1 %v7, label %b117, label %b118
b117:
  br label %b119
b118:
  %v120 = load float, ptr %v15, align 1
  %v121 = fadd contract float %v120, %v116
  br label %b119
b119:
  %v122 = phi float [ %v116, %b117 ], [ %v121, %b118 ]
  store float %v122, ptr %v15, align 1
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
!0 = !{i32 1}

; s, finalize, KernelSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = icmp ne i64 1, 0
  %v2 = getelementptr i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2
  %v4 = inttoptr i64 %v3 to ptr
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = inttoptr i64 %v6 to ptr
  %v8 = load float, ptr %v4, align 1
  store float %v8, ptr %v7, align 1
  ret void
}

!0 = !{i32 1}

