; Wq.sum, full, PackedSpec
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

; Wq.sum, finalize, KernelSpec
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
  %v13 = icmp ne i64 1, 0
  %v14 = getelementptr i64, ptr %args, i64 7
  %v15 = load i64, ptr %v14
  %v16 = inttoptr i64 %v15 to ptr
  %v17 = getelementptr i64, ptr %args, i64 8
  %v18 = load i64, ptr %v17
  %v19 = getelementptr i64, ptr %args, i64 9
  %v20 = load i64, ptr %v19
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = getelementptr i64, ptr %args, i64 11
  %v24 = load i64, ptr %v23
  %v25 = inttoptr i64 %v24 to ptr
  %v26 = getelementptr i64, ptr %args, i64 12
  %v27 = load i64, ptr %v26
  %v28 = getelementptr i64, ptr %args, i64 13
  %v29 = load i64, ptr %v28
  %v30 = getelementptr i64, ptr %args, i64 14
  %v31 = load i64, ptr %v30
  br label %b32
b32:
  %v35 = phi i64 [ 0, %entry ], [ %v93, %b39 ]
  %v36 = icmp slt i64 %v35, %v2
  br i1 %v36, label %b33, label %b34
b33:
  br label %b37
b37:
  %v40 = phi i64 [ 0, %b33 ], [ %v92, %b72 ]
  %v41 = icmp slt i64 %v40, %v4
  br i1 %v41, label %b38, label %b39
b38:
  %v42 = urem i64 %v6, 16
  %v43 = sub i64 %v6, %v42
  br label %b44
b44:
  %v47 = phi i64 [ 0, %b38 ], [ %v62, %b45 ]
  %v48 = icmp slt i64 %v47, %v43
  br i1 %v48, label %b45, label %b46
b45:
  %v49 = mul nsw i64 %v35, %v18
  %v50 = mul nsw i64 %v40, %v20
  %v51 = add nsw i64 %v49, %v50
  %v52 = mul nsw i64 %v47, %v22
  %v53 = add nsw i64 %v51, %v52
  %v54 = getelementptr i8, ptr %v16, i64 %v53
  %v55 = load <16 x float>, ptr %v54, align 1
  %v56 = mul nsw i64 %v35, %v27
  %v57 = mul nsw i64 %v40, %v29
  %v58 = add nsw i64 %v56, %v57
  %v59 = mul nsw i64 %v47, %v31
  %v60 = add nsw i64 %v58, %v59
  %v61 = getelementptr i8, ptr %v25, i64 %v60
  store <16 x float> %v55, ptr %v61, align 1
  %v62 = add nsw i64 %v47, 16
  br label %b44
b46:
  %v63 = sub i64 %v6, %v43
  %v64 = icmp sgt i64 %v63, 0
  %v65 = add i64 %v43, 16
  %v66 = select i1 %v64, i64 %v65, i64 %v43
  %v67 = insertelement <16 x i64> poison, i64 %v63, i64 0
  %v68 = shufflevector <16 x i64> %v67, <16 x i64> poison, <16 x i32> zeroinitializer
  %v69 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v68
  br label %b70
b70:
  %v73 = phi i64 [ %v43, %b46 ], [ %v91, %b71 ]
  %v74 = icmp slt i64 %v73, %v66
  br i1 %v74, label %b71, label %b72
b71:
  %v75 = mul nsw i64 %v35, %v18
  %v76 = mul nsw i64 %v40, %v20
  %v77 = add nsw i64 %v75, %v76
  %v78 = mul nsw i64 %v73, %v22
  %v79 = add nsw i64 %v77, %v78
  %v80 = getelementptr i8, ptr %v16, i64 %v79
  %v81 = load float, ptr %v80, align 1
  %v82 = insertelement <16 x float> poison, float %v81, i64 0
  %v83 = shufflevector <16 x float> %v82, <16 x float> poison, <16 x i32> zeroinitializer
  %v84 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v80, i32 1, <16 x i1> %v69, <16 x float> %v83)
  %v85 = mul nsw i64 %v35, %v27
  %v86 = mul nsw i64 %v40, %v29
  %v87 = add nsw i64 %v85, %v86
  %v88 = mul nsw i64 %v73, %v31
  %v89 = add nsw i64 %v87, %v88
  %v90 = getelementptr i8, ptr %v25, i64 %v89
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v84, ptr %v90, i32 1, <16 x i1> %v69)
  %v91 = add nsw i64 %v73, 16
  br label %b70
b72:
  %v92 = add nsw i64 %v40, 1
  br label %b37
b39:
  %v93 = add nsw i64 %v35, 1
  br label %b32
b34:
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
!0 = !{i32 1}

; Wq, full, KernelSpec
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
  %v13 = icmp ne i64 1, 0
  %v14 = getelementptr i64, ptr %args, i64 7
  %v15 = load i64, ptr %v14
  %v16 = inttoptr i64 %v15 to ptr
  %v17 = getelementptr i64, ptr %args, i64 8
  %v18 = load i64, ptr %v17
  %v19 = getelementptr i64, ptr %args, i64 9
  %v20 = load i64, ptr %v19
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = getelementptr i64, ptr %args, i64 11
  %v24 = load i64, ptr %v23
  %v25 = inttoptr i64 %v24 to ptr
  %v26 = getelementptr i64, ptr %args, i64 12
  %v27 = load i64, ptr %v26
  %v28 = getelementptr i64, ptr %args, i64 13
  %v29 = load i64, ptr %v28
  %v30 = getelementptr i64, ptr %args, i64 14
  %v31 = load i64, ptr %v30
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = inttoptr i64 %v33 to ptr
  %v35 = getelementptr i64, ptr %args, i64 16
  %v36 = load i64, ptr %v35
  %v37 = getelementptr i64, ptr %args, i64 17
  %v38 = load i64, ptr %v37
  %v39 = getelementptr i64, ptr %args, i64 18
  %v40 = load i64, ptr %v39
  %v41 = getelementptr i64, ptr %args, i64 19
  %v42 = load i64, ptr %v41
  %v43 = inttoptr i64 %v42 to ptr
  %v44 = getelementptr i64, ptr %args, i64 20
  %v45 = load i64, ptr %v44
  %v46 = getelementptr i64, ptr %args, i64 21
  %v47 = load i64, ptr %v46
  %v48 = getelementptr i64, ptr %args, i64 22
  %v49 = load i64, ptr %v48
  br label %b50
b50:
  %v53 = phi i64 [ 0, %entry ], [ %v140, %b57 ]
  %v54 = icmp slt i64 %v53, %v2
  br i1 %v54, label %b51, label %b52
b51:
  br label %b55
b55:
  %v58 = phi i64 [ 0, %b51 ], [ %v139, %b103 ]
  %v59 = icmp slt i64 %v58, %v4
  br i1 %v59, label %b56, label %b57
b56:
  %v60 = urem i64 %v6, 16
  %v61 = sub i64 %v6, %v60
  br label %b62
b62:
  %v65 = phi i64 [ 0, %b56 ], [ %v93, %b63 ]
  %v66 = icmp slt i64 %v65, %v61
  br i1 %v66, label %b63, label %b64
b63:
  %v67 = mul nsw i64 %v53, %v18
  %v68 = mul nsw i64 %v58, %v20
  %v69 = add nsw i64 %v67, %v68
  %v70 = mul nsw i64 %v65, %v22
  %v71 = add nsw i64 %v69, %v70
  %v72 = getelementptr i8, ptr %v16, i64 %v71
  %v73 = load <16 x float>, ptr %v72, align 1
  %v74 = load float, ptr %v25, align 1
  %v75 = fdiv contract float %v74, 0x4020000000000000
  %v76 = mul nsw i64 %v53, %v36
  %v77 = mul nsw i64 %v58, %v38
  %v78 = add nsw i64 %v76, %v77
  %v79 = mul nsw i64 %v65, %v40
  %v80 = add nsw i64 %v78, %v79
  %v81 = getelementptr i8, ptr %v34, i64 %v80
  %v82 = load <16 x float>, ptr %v81, align 1
  %v83 = insertelement <16 x float> poison, float %v75, i64 0
  %v84 = shufflevector <16 x float> %v83, <16 x float> poison, <16 x i32> zeroinitializer
  %v85 = fmul contract <16 x float> %v84, %v82
  %v86 = fadd contract <16 x float> %v73, %v85
  %v87 = mul nsw i64 %v53, %v45
  %v88 = mul nsw i64 %v58, %v47
  %v89 = add nsw i64 %v87, %v88
  %v90 = mul nsw i64 %v65, %v49
  %v91 = add nsw i64 %v89, %v90
  %v92 = getelementptr i8, ptr %v43, i64 %v91
  store <16 x float> %v86, ptr %v92, align 1
  %v93 = add nsw i64 %v65, 16
  br label %b62
b64:
  %v94 = sub i64 %v6, %v61
  %v95 = icmp sgt i64 %v94, 0
  %v96 = add i64 %v61, 16
  %v97 = select i1 %v95, i64 %v96, i64 %v61
  %v98 = insertelement <16 x i64> poison, i64 %v94, i64 0
  %v99 = shufflevector <16 x i64> %v98, <16 x i64> poison, <16 x i32> zeroinitializer
  %v100 = icmp slt <16 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15>, %v99
  br label %b101
b101:
  %v104 = phi i64 [ %v61, %b64 ], [ %v138, %b102 ]
  %v105 = icmp slt i64 %v104, %v97
  br i1 %v105, label %b102, label %b103
b102:
  %v106 = mul nsw i64 %v53, %v18
  %v107 = mul nsw i64 %v58, %v20
  %v108 = add nsw i64 %v106, %v107
  %v109 = mul nsw i64 %v104, %v22
  %v110 = add nsw i64 %v108, %v109
  %v111 = getelementptr i8, ptr %v16, i64 %v110
  %v112 = load float, ptr %v111, align 1
  %v113 = insertelement <16 x float> poison, float %v112, i64 0
  %v114 = shufflevector <16 x float> %v113, <16 x float> poison, <16 x i32> zeroinitializer
  %v115 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v111, i32 1, <16 x i1> %v100, <16 x float> %v114)
  %v116 = load float, ptr %v25, align 1
  %v117 = fdiv contract float %v116, 0x4020000000000000
  %v118 = mul nsw i64 %v53, %v36
  %v119 = mul nsw i64 %v58, %v38
  %v120 = add nsw i64 %v118, %v119
  %v121 = mul nsw i64 %v104, %v40
  %v122 = add nsw i64 %v120, %v121
  %v123 = getelementptr i8, ptr %v34, i64 %v122
  %v124 = load float, ptr %v123, align 1
  %v125 = insertelement <16 x float> poison, float %v124, i64 0
  %v126 = shufflevector <16 x float> %v125, <16 x float> poison, <16 x i32> zeroinitializer
  %v127 = call <16 x float> @llvm.masked.load.v16f32.p0(ptr %v123, i32 1, <16 x i1> %v100, <16 x float> %v126)
  %v128 = insertelement <16 x float> poison, float %v117, i64 0
  %v129 = shufflevector <16 x float> %v128, <16 x float> poison, <16 x i32> zeroinitializer
  %v130 = fmul contract <16 x float> %v129, %v127
  %v131 = fadd contract <16 x float> %v115, %v130
  %v132 = mul nsw i64 %v53, %v45
  %v133 = mul nsw i64 %v58, %v47
  %v134 = add nsw i64 %v132, %v133
  %v135 = mul nsw i64 %v104, %v49
  %v136 = add nsw i64 %v134, %v135
  %v137 = getelementptr i8, ptr %v43, i64 %v136
  call void @llvm.masked.store.v16f32.p0(<16 x float> %v131, ptr %v137, i32 1, <16 x i1> %v100)
  %v138 = add nsw i64 %v104, 16
  br label %b101
b103:
  %v139 = add nsw i64 %v58, 1
  br label %b55
b57:
  %v140 = add nsw i64 %v53, 1
  br label %b50
b52:
  ret void
}
declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32, <16 x i1>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
!0 = !{i32 1}

