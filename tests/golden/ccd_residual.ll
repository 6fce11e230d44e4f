; Lp, full, PackedSpec
; sha256 bbcf9ce8118e62a07f592c89e85b13148917e76aac9ce09fa914b8a6f0a40196
define internal i64 @place(ptr %list, i64 %number, i64 %word) #0 {
  3 add, 3 br, 4 getelementptr, 1 icmp, 3 load, 3 mul, 3 phi, 1 ret, 2 sub, 1 udiv, 1 urem

define internal void @table(ptr %places, ptr %runs, ptr %list, i64 %begin, i64 %count, i64 %padded, i64 %word) #0 {
  8 add, 12 br, 1 call, 8 getelementptr, 5 icmp, 4 load, 6 mul, 9 phi, 1 ret, 1 select, 3 store, 6 sub, 1 urem

define internal void @pack_left(ptr %target, ptr %source, ptr %places, ptr %runs, ptr %terms, ptr %term_runs, ptr %ahead, i64 %count) #0 {
  26 add, 4 and, 24 br, 20 call, 236 getelementptr, 10 icmp, 108 load, 80 mul, 4 phi, 1 ret, 2 select, 48 shufflevector, 36 store, 4 sub, 2 udiv

define internal void @pack_right(ptr %target, ptr %source, ptr %places, ptr %runs, ptr %terms, ptr %term_runs, ptr %ahead, i64 %count) #0 {
  30 add, 2 and, 36 br, 11 call, 244 getelementptr, 14 icmp, 123 load, 81 mul, 7 phi, 1 ret, 2 select, 48 shufflevector, 36 store, 5 sub, 2 udiv

define internal void @update(ptr %tile, ptr %out, ptr %rows, ptr %columns, ptr %runs, ptr %factor, i64 %height, i64 %breadth, i64 %how) #0 {
  40 add, 8 and, 76 br, 10 call, 6 fadd, 10 fmul, 64 getelementptr, 29 icmp, 5 insertelement, 42 load, 50 mul, 18 phi, 2 ptrtoint, 1 ret, 2 select, 5 shufflevector, 8 store, 4 sub

define internal void @pack_columns(ptr %panels, ptr %source, ptr %columns, ptr %terms, ptr %near, i64 %first, i64 %step, i64 %part, i64 %panel_nbytes, i64 %count) #0 {
  58 add, 3 and, 44 br, 19 call, 60 getelementptr, 22 icmp, 5 insertelement, 23 load, 63 mul, 13 phi, 1 ret, 53 shufflevector, 18 store, 22 sub, 17 udiv, 12 urem

define internal void @pack_terms(ptr %panel, ptr %source, ptr %columns, ptr %terms, ptr %near, i64 %step, i64 %part, i64 %count) #0 {
  18 add, 15 br, 18 call, 47 getelementptr, 6 icmp, 1 insertelement, 19 load, 25 mul, 4 phi, 1 ret, 25 shufflevector, 17 store, 3 sub, 2 udiv

define internal void @tile4x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 17 call, 8 fadd, 16 fmul, 62 getelementptr, 8 icmp, 9 insertelement, 26 load, 4 mul, 6 phi, 1 ret, 1 select, 9 shufflevector, 8 store, 2 sub

define internal void @tile4x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 21 call, 16 fadd, 32 fmul, 107 getelementptr, 8 icmp, 9 insertelement, 43 load, 4 mul, 10 phi, 1 ret, 1 select, 9 shufflevector, 24 store, 2 sub

define internal void @tile8x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 33 call, 16 fadd, 32 fmul, 118 getelementptr, 8 icmp, 13 insertelement, 46 load, 4 mul, 10 phi, 1 ret, 1 select, 13 shufflevector, 16 store, 2 sub

define internal void @tile8x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 41 call, 32 fadd, 64 fmul, 207 getelementptr, 8 icmp, 13 insertelement, 79 load, 4 mul, 18 phi, 1 ret, 1 select, 13 shufflevector, 48 store, 2 sub

define internal void @tile12x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 49 call, 24 fadd, 48 fmul, 174 getelementptr, 8 icmp, 17 insertelement, 66 load, 4 mul, 14 phi, 1 ret, 1 select, 17 shufflevector, 24 store, 2 sub

define internal void @tile12x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %left, ptr %right, ptr %source, ptr %ahead, ptr %terms, i64 %how, i64 %breadth, i64 %count) #0 {
  3 add, 14 br, 61 call, 48 fadd, 96 fmul, 307 getelementptr, 8 icmp, 17 insertelement, 115 load, 4 mul, 26 phi, 1 ret, 1 select, 17 shufflevector, 72 store, 2 sub

define internal void @strip4x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 27 call, 12 fadd, 16 fmul, 85 getelementptr, 11 icmp, 9 insertelement, 36 load, 8 mul, 15 phi, 1 ret, 4 select, 9 shufflevector, 8 store, 5 sub, 1 udiv

define internal void @strip4x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 31 call, 24 fadd, 32 fmul, 130 getelementptr, 11 icmp, 9 insertelement, 53 load, 8 mul, 27 phi, 1 ret, 4 select, 9 shufflevector, 24 store, 5 sub, 1 udiv

define internal void @strip8x1(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 51 call, 24 fadd, 32 fmul, 165 getelementptr, 11 icmp, 13 insertelement, 68 load, 12 mul, 27 phi, 1 ret, 4 select, 13 shufflevector, 16 store, 5 sub, 1 udiv

define internal void @strip8x2(ptr %target, ptr %out, ptr %places, ptr %factor, ptr %right, ptr %source, ptr %rows, ptr %ahead, i64 %how, i64 %breadth, i64 %first, i64 %count) #0 {
  8 add, 20 br, 59 call, 48 fadd, 64 fmul, 254 getelementptr, 11 icmp, 13 insertelement, 101 load, 12 mul, 51 phi, 1 ret, 4 select, 13 shufflevector, 48 store, 5 sub, 1 udiv

define void @kernel(ptr %words) #0 {
  38 add, 35 and, 94 br, 61 call, 127 getelementptr, 75 icmp, 4 inttoptr, 41 load, 86 mul, 12 phi, 3 ptrtoint, 1 ret, 27 select, 2 store, 34 sub, 23 udiv, 1 urem, 10 xor

; Lp, full, KernelSpec
; sha256 0091583d7579b5d7edda1c0aeccede577ce314a2b1d749610813e0a0cfa1287c
define void @kernel(ptr noalias readonly %args) #0 {
  402 add, 117 br, 43 call, 100 fadd, 100 fmul, 123 getelementptr, 42 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 189 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Lp, accumulate, KernelSpec
; sha256 ad6246bef66ec90b860d26f74215d94dec3c04595c0efaef8b1bbd894e7aaadb
define void @kernel(ptr noalias readonly %args) #0 {
  612 add, 267 br, 68 call, 150 fadd, 100 fmul, 174 getelementptr, 42 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 239 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Lp, finalize, KernelSpec
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
  %v17 = icmp ne i64 1, 0
  %v18 = getelementptr i64, ptr %args, i64 9
  %v19 = load i64, ptr %v18
  %v20 = inttoptr i64 %v19 to ptr
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = getelementptr i64, ptr %args, i64 11
  %v24 = load i64, ptr %v23
  %v25 = getelementptr i64, ptr %args, i64 12
  %v26 = load i64, ptr %v25
  %v27 = getelementptr i64, ptr %args, i64 13
  %v28 = load i64, ptr %v27
  %v29 = getelementptr i64, ptr %args, i64 14
  %v30 = load i64, ptr %v29
  %v31 = inttoptr i64 %v30 to ptr
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = getelementptr i64, ptr %args, i64 16
  %v35 = load i64, ptr %v34
  %v36 = getelementptr i64, ptr %args, i64 17
  %v37 = load i64, ptr %v36
  %v38 = getelementptr i64, ptr %args, i64 18
  %v39 = load i64, ptr %v38
  br label %b40
b40:
  %v43 = phi i64 [ 0, %entry ], [ %v115, %b47 ]
  %v44 = icmp slt i64 %v43, %v2
  br i1 %v44, label %b41, label %b42
b41:
  br label %b45
b45:
  %v48 = phi i64 [ 0, %b41 ], [ %v114, %b52 ]
  %v49 = icmp slt i64 %v48, %v4
  br i1 %v49, label %b46, label %b47
b46:
  br label %b50
b50:
  %v53 = phi i64 [ 0, %b46 ], [ %v113, %b89 ]
  %v54 = icmp slt i64 %v53, %v6
  br i1 %v54, label %b51, label %b52
b51:
  %v55 = urem i64 %v8, 4
  %v56 = sub i64 %v8, %v55
  br label %b57
b57:
  %v60 = phi i64 [ 0, %b51 ], [ %v79, %b58 ]
  %v61 = icmp slt i64 %v60, %v56
  br i1 %v61, label %b58, label %b59
b58:
  %v62 = mul nsw i64 %v43, %v22
  %v63 = mul nsw i64 %v48, %v24
  %v64 = add nsw i64 %v62, %v63
  %v65 = mul nsw i64 %v53, %v26
  %v66 = add nsw i64 %v64, %v65
  %v67 = mul nsw i64 %v60, %v28
  %v68 = add nsw i64 %v66, %v67
  %v69 = getelementptr i8, ptr %v20, i64 %v68
  %v70 = load <4 x double>, ptr %v69, align 1
  %v71 = mul nsw i64 %v43, %v33
  %v72 = mul nsw i64 %v48, %v35
  %v73 = add nsw i64 %v71, %v72
  %v74 = mul nsw i64 %v53, %v37
  %v75 = add nsw i64 %v73, %v74
  %v76 = mul nsw i64 %v60, %v39
  %v77 = add nsw i64 %v75, %v76
  %v78 = getelementptr i8, ptr %v31, i64 %v77
  store <4 x double> %v70, ptr %v78, align 1
  %v79 = add nsw i64 %v60, 4
  br label %b57
b59:
  %v80 = sub i64 %v8, %v56
  %v81 = icmp sgt i64 %v80, 0
  %v82 = add i64 %v56, 4
  %v83 = select i1 %v81, i64 %v82, i64 %v56
  %v84 = insertelement <4 x i64> poison, i64 %v80, i64 0
  %v85 = shufflevector <4 x i64> %v84, <4 x i64> poison, <4 x i32> zeroinitializer
  %v86 = icmp slt <4 x i64> <i64 0, i64 1, i64 2, i64 3>, %v85
  br label %b87
b87:
  %v90 = phi i64 [ %v56, %b59 ], [ %v112, %b88 ]
  %v91 = icmp slt i64 %v90, %v83
  br i1 %v91, label %b88, label %b89
b88:
  %v92 = mul nsw i64 %v43, %v22
  %v93 = mul nsw i64 %v48, %v24
  %v94 = add nsw i64 %v92, %v93
  %v95 = mul nsw i64 %v53, %v26
  %v96 = add nsw i64 %v94, %v95
  %v97 = mul nsw i64 %v90, %v28
  %v98 = add nsw i64 %v96, %v97
  %v99 = getelementptr i8, ptr %v20, i64 %v98
  %v100 = load double, ptr %v99, align 1
  %v101 = insertelement <4 x double> poison, double %v100, i64 0
  %v102 = shufflevector <4 x double> %v101, <4 x double> poison, <4 x i32> zeroinitializer
  %v103 = call <4 x double> @llvm.masked.load.v4f64.p0(ptr %v99, i32 1, <4 x i1> %v86, <4 x double> %v102)
  %v104 = mul nsw i64 %v43, %v33
  %v105 = mul nsw i64 %v48, %v35
  %v106 = add nsw i64 %v104, %v105
  %v107 = mul nsw i64 %v53, %v37
  %v108 = add nsw i64 %v106, %v107
  %v109 = mul nsw i64 %v90, %v39
  %v110 = add nsw i64 %v108, %v109
  %v111 = getelementptr i8, ptr %v31, i64 %v110
  call void @llvm.masked.store.v4f64.p0(<4 x double> %v103, ptr %v111, i32 1, <4 x i1> %v86)
  %v112 = add nsw i64 %v90, 4
  br label %b87
b89:
  %v113 = add nsw i64 %v53, 1
  br label %b50
b52:
  %v114 = add nsw i64 %v48, 1
  br label %b45
b47:
  %v115 = add nsw i64 %v43, 1
  br label %b40
b42:
  ret void
}
declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, i32, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, i32, <4 x i1>)
!0 = !{i32 1}

; Lh, full, KernelSpec
; sha256 cf170d2078756007e13761fc53856ac5c71aac34f69aeaa2d02c452c5a26e724
define void @kernel(ptr noalias readonly %args) #0 {
  386 add, 93 br, 35 call, 50 fadd, 100 fmul, 123 getelementptr, 34 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 131 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Lh, accumulate, KernelSpec
; sha256 ddb9e54d81cdc107c688bd5c3e72a3661135437479134c7cfb134d37be30b598
define void @kernel(ptr noalias readonly %args) #0 {
  596 add, 243 br, 60 call, 100 fadd, 100 fmul, 174 getelementptr, 34 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 181 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; R, full, KernelSpec
; sha256 b64131ea09401bca10a83160e60c002f294d18586b5a4fe1fca423df7313c4e4
define void @kernel(ptr noalias readonly %args) #0 {
  386 add, 93 br, 35 call, 50 fadd, 50 fmul, 123 getelementptr, 34 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 131 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; R, accumulate, KernelSpec
; sha256 177080876ef5160ee6f5c1089147968ed056ab1560d7b98ab8a0771a2331a5a9
define void @kernel(ptr noalias readonly %args) #0 {
  596 add, 243 br, 60 call, 100 fadd, 50 fmul, 174 getelementptr, 34 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 181 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Wh, full, KernelSpec
; sha256 d911163e80485fb7aaa89ddb4d0032763cf1b9599eb730835eac8870ed267e9c
define void @kernel(ptr noalias readonly %args) #0 {
  402 add, 117 br, 43 call, 100 fadd, 100 fmul, 123 getelementptr, 42 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 189 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Wh, accumulate, KernelSpec
; sha256 969ce00a78027b7b428c0c17693016eacd125079627e4c2ae387ffb97679b7d1
define void @kernel(ptr noalias readonly %args) #0 {
  612 add, 267 br, 68 call, 150 fadd, 100 fmul, 174 getelementptr, 42 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 239 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Wr, full, KernelSpec
; sha256 3d6a518386b3e8dbf81f4ac343c1e642b3337efce489036d8348e55438c9e8d7
define void @kernel(ptr noalias readonly %args) #0 {
  476 add, 93 br, 29 call, 50 fadd, 100 fmul, 141 getelementptr, 34 icmp, 55 insertelement, 3 inttoptr, 91 load, 432 mul, 131 phi, 1 ret, 1 select, 55 shufflevector, 25 store, 8 sub, 7 urem

; Wr, accumulate, KernelSpec
; sha256 bc46961089540c1fc5074797040a384ee91dc9a170296350783b59cc6e01d77f
define void @kernel(ptr noalias readonly %args) #0 {
  686 add, 243 br, 54 call, 100 fadd, 100 fmul, 192 getelementptr, 34 icmp, 80 insertelement, 3 inttoptr, 142 load, 632 mul, 181 phi, 1 ret, 1 select, 80 shufflevector, 25 store, 8 sub, 7 urem

; Fv, full, KernelSpec
; sha256 a9f53f21caa47ae016c47629e0203fee93bc3b8ab1e0528f061aa83dae1e570f
define void @kernel(ptr noalias readonly %args) #0 {
  94 add, 69 br, 13 call, 20 fadd, 20 fmul, 56 getelementptr, 27 icmp, 19 insertelement, 3 inttoptr, 42 load, 81 mul, 63 phi, 1 ret, 1 sdiv, 2 select, 19 shufflevector, 5 store, 4 sub, 3 urem

; Fv, accumulate, KernelSpec
; sha256 d991cae98dd7a97fe71d8b9ee484a263b89bed247a557f8f07ae7bc1a871d781
define void @kernel(ptr noalias readonly %args) #0 {
  110 add, 99 br, 18 call, 30 fadd, 20 fmul, 67 getelementptr, 27 icmp, 24 insertelement, 3 inttoptr, 53 load, 101 mul, 73 phi, 1 ret, 1 sdiv, 2 select, 24 shufflevector, 5 store, 4 sub, 3 urem

; Fv, finalize, KernelSpec
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
  %v27 = phi i64 [ 0, %entry ], [ %v71, %b55 ]
  %v28 = icmp slt i64 %v27, %v2
  br i1 %v28, label %b25, label %b26
b25:
  %v29 = urem i64 %v4, 8
  %v30 = sub i64 %v4, %v29
  br label %b31
b31:
  %v34 = phi i64 [ 0, %b25 ], [ %v45, %b32 ]
  %v35 = icmp slt i64 %v34, %v30
  br i1 %v35, label %b32, label %b33
b32:
  %v36 = mul nsw i64 %v27, %v14
  %v37 = mul nsw i64 %v34, %v16
  %v38 = add nsw i64 %v36, %v37
  %v39 = getelementptr i8, ptr %v12, i64 %v38
  %v40 = load <8 x double>, ptr %v39, align 1
  %v41 = mul nsw i64 %v27, %v21
  %v42 = mul nsw i64 %v34, %v23
  %v43 = add nsw i64 %v41, %v42
  %v44 = getelementptr i8, ptr %v19, i64 %v43
  store <8 x double> %v40, ptr %v44, align 1
  %v45 = add nsw i64 %v34, 8
  br label %b31
b33:
  %v46 = sub i64 %v4, %v30
  %v47 = icmp sgt i64 %v46, 0
  %v48 = add i64 %v30, 8
  %v49 = select i1 %v47, i64 %v48, i64 %v30
  %v50 = insertelement <8 x i64> poison, i64 %v46, i64 0
  %v51 = shufflevector <8 x i64> %v50, <8 x i64> poison, <8 x i32> zeroinitializer
  %v52 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v51
  br label %b53
b53:
  %v56 = phi i64 [ %v30, %b33 ], [ %v70, %b54 ]
  %v57 = icmp slt i64 %v56, %v49
  br i1 %v57, label %b54, label %b55
b54:
  %v58 = mul nsw i64 %v27, %v14
  %v59 = mul nsw i64 %v56, %v16
  %v60 = add nsw i64 %v58, %v59
  %v61 = getelementptr i8, ptr %v12, i64 %v60
  %v62 = load double, ptr %v61, align 1
  %v63 = insertelement <8 x double> poison, double %v62, i64 0
  %v64 = shufflevector <8 x double> %v63, <8 x double> poison, <8 x i32> zeroinitializer
  %v65 = call <8 x double> @llvm.masked.load.v8f64.p0(ptr %v61, i32 1, <8 x i1> %v52, <8 x double> %v64)
  %v66 = mul nsw i64 %v27, %v21
  %v67 = mul nsw i64 %v56, %v23
  %v68 = add nsw i64 %v66, %v67
  %v69 = getelementptr i8, ptr %v19, i64 %v68
  call void @llvm.masked.store.v8f64.p0(<8 x double> %v65, ptr %v69, i32 1, <8 x i1> %v52)
  %v70 = add nsw i64 %v56, 8
  br label %b53
b55:
  %v71 = add nsw i64 %v27, 1
  br label %b24
b26:
  ret void
}
declare <8 x double> @llvm.masked.load.v8f64.p0(ptr, i32, <8 x i1>, <8 x double>)
declare void @llvm.masked.store.v8f64.p0(<8 x double>, ptr, i32, <8 x i1>)
!0 = !{i32 1}

; Fo, full, KernelSpec
; sha256 7a70114506d9a25605c53ac363d23b026089a2cefffe42875fe5db7f0acae962
define void @kernel(ptr noalias readonly %args) #0 {
  94 add, 69 br, 13 call, 20 fadd, 20 fmul, 56 getelementptr, 27 icmp, 19 insertelement, 3 inttoptr, 42 load, 81 mul, 63 phi, 1 ret, 1 sdiv, 2 select, 19 shufflevector, 5 store, 4 sub, 3 urem

; Fo, accumulate, KernelSpec
; sha256 c16c3a5af22c8e6d6c281099ed9953dc6dfcb1eaba44578d0e8017dad99b18d1
define void @kernel(ptr noalias readonly %args) #0 {
  110 add, 99 br, 18 call, 30 fadd, 20 fmul, 67 getelementptr, 27 icmp, 24 insertelement, 3 inttoptr, 53 load, 101 mul, 73 phi, 1 ret, 1 sdiv, 2 select, 24 shufflevector, 5 store, 4 sub, 3 urem

; Fo, finalize, KernelSpec
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
  %v27 = phi i64 [ 0, %entry ], [ %v71, %b55 ]
  %v28 = icmp slt i64 %v27, %v2
  br i1 %v28, label %b25, label %b26
b25:
  %v29 = urem i64 %v4, 4
  %v30 = sub i64 %v4, %v29
  br label %b31
b31:
  %v34 = phi i64 [ 0, %b25 ], [ %v45, %b32 ]
  %v35 = icmp slt i64 %v34, %v30
  br i1 %v35, label %b32, label %b33
b32:
  %v36 = mul nsw i64 %v27, %v14
  %v37 = mul nsw i64 %v34, %v16
  %v38 = add nsw i64 %v36, %v37
  %v39 = getelementptr i8, ptr %v12, i64 %v38
  %v40 = load <4 x double>, ptr %v39, align 1
  %v41 = mul nsw i64 %v27, %v21
  %v42 = mul nsw i64 %v34, %v23
  %v43 = add nsw i64 %v41, %v42
  %v44 = getelementptr i8, ptr %v19, i64 %v43
  store <4 x double> %v40, ptr %v44, align 1
  %v45 = add nsw i64 %v34, 4
  br label %b31
b33:
  %v46 = sub i64 %v4, %v30
  %v47 = icmp sgt i64 %v46, 0
  %v48 = add i64 %v30, 4
  %v49 = select i1 %v47, i64 %v48, i64 %v30
  %v50 = insertelement <4 x i64> poison, i64 %v46, i64 0
  %v51 = shufflevector <4 x i64> %v50, <4 x i64> poison, <4 x i32> zeroinitializer
  %v52 = icmp slt <4 x i64> <i64 0, i64 1, i64 2, i64 3>, %v51
  br label %b53
b53:
  %v56 = phi i64 [ %v30, %b33 ], [ %v70, %b54 ]
  %v57 = icmp slt i64 %v56, %v49
  br i1 %v57, label %b54, label %b55
b54:
  %v58 = mul nsw i64 %v27, %v14
  %v59 = mul nsw i64 %v56, %v16
  %v60 = add nsw i64 %v58, %v59
  %v61 = getelementptr i8, ptr %v12, i64 %v60
  %v62 = load double, ptr %v61, align 1
  %v63 = insertelement <4 x double> poison, double %v62, i64 0
  %v64 = shufflevector <4 x double> %v63, <4 x double> poison, <4 x i32> zeroinitializer
  %v65 = call <4 x double> @llvm.masked.load.v4f64.p0(ptr %v61, i32 1, <4 x i1> %v52, <4 x double> %v64)
  %v66 = mul nsw i64 %v27, %v21
  %v67 = mul nsw i64 %v56, %v23
  %v68 = add nsw i64 %v66, %v67
  %v69 = getelementptr i8, ptr %v19, i64 %v68
  call void @llvm.masked.store.v4f64.p0(<4 x double> %v65, ptr %v69, i32 1, <4 x i1> %v52)
  %v70 = add nsw i64 %v56, 4
  br label %b53
b55:
  %v71 = add nsw i64 %v27, 1
  br label %b24
b26:
  ret void
}
declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, i32, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, i32, <4 x i1>)
!0 = !{i32 1}

; Qh, full, KernelSpec
; sha256 c161e863496061aa339ae3c44eb339d5456d3d2dad7e8a40b2afbd724423c5d7
define void @kernel(ptr noalias readonly %args) #0 {
  386 add, 93 br, 35 call, 50 fadd, 50 fmul, 123 getelementptr, 34 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 131 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Qh, accumulate, KernelSpec
; sha256 ed857ceef502aef8de14b0037a3c689acc44e1eb30bfe74a9627e1cdbe60ca60
define void @kernel(ptr noalias readonly %args) #0 {
  596 add, 243 br, 60 call, 100 fadd, 50 fmul, 174 getelementptr, 34 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 181 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Qr, full, KernelSpec
; sha256 ebef3e295190ed8661bf73adfad4ee6a0c46141c6fc2e8e8c6687374ce994da4
define void @kernel(ptr noalias readonly %args) #0 {
  386 add, 93 br, 35 call, 50 fadd, 50 fmul, 123 getelementptr, 34 icmp, 61 insertelement, 3 inttoptr, 73 load, 360 mul, 131 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Qr, accumulate, KernelSpec
; sha256 2bd26e9a21d8415ad77ad6cf2c51d4e23d09d65235551fbb779c126af505f600
define void @kernel(ptr noalias readonly %args) #0 {
  596 add, 243 br, 60 call, 100 fadd, 50 fmul, 174 getelementptr, 34 icmp, 86 insertelement, 3 inttoptr, 124 load, 560 mul, 181 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Qv, full, KernelSpec
; sha256 ff4f3dafbd1785bfa4f7aa0cacaea8931b64bc6b0869c831616644e14a3e3054
define void @kernel(ptr noalias readonly %args) #0 {
  338 add, 69 br, 35 call, 50 fadd, 50 fmul, 118 getelementptr, 26 icmp, 61 insertelement, 3 inttoptr, 68 load, 320 mul, 73 phi, 1 ret, 1 select, 61 shufflevector, 25 store, 8 sub, 7 urem

; Qv, accumulate, KernelSpec
; sha256 7a45f85b90bedaf2833135eed276886eeb61b1a6a39bd4623a45f6aaec582949
define void @kernel(ptr noalias readonly %args) #0 {
  548 add, 219 br, 60 call, 100 fadd, 50 fmul, 169 getelementptr, 26 icmp, 86 insertelement, 3 inttoptr, 119 load, 520 mul, 123 phi, 1 ret, 1 select, 86 shufflevector, 25 store, 8 sub, 7 urem

; Qo, full, KernelSpec
; sha256 b18ea9b5aac66a150bb0481ad4dd698118733b1b6018e309b7cb7f898af81bc0
define void @kernel(ptr noalias readonly %args) #0 {
  452 add, 69 br, 29 call, 50 fadd, 50 fmul, 136 getelementptr, 26 icmp, 55 insertelement, 3 inttoptr, 86 load, 416 mul, 73 phi, 1 ret, 1 select, 55 shufflevector, 25 store, 8 sub, 7 urem

; Qo, accumulate, KernelSpec
; sha256 dcbfb2c2b96a84c78866ac36078b55b82200369e143493f70f3e5fc7f088eba7
define void @kernel(ptr noalias readonly %args) #0 {
  662 add, 219 br, 54 call, 100 fadd, 50 fmul, 187 getelementptr, 26 icmp, 80 insertelement, 3 inttoptr, 137 load, 616 mul, 123 phi, 1 ret, 1 select, 80 shufflevector, 25 store, 8 sub, 7 urem

; ringed, full, KernelSpec
; sha256 0b996e57465f0e36a6f1d20609857e7a6a3b7467a694781c7c3e3aaed170bf61
define void @kernel(ptr noalias readonly %args) #0 {
  63 add, 18 br, 13 call, 10 fadd, 4 fsub, 79 getelementptr, 10 icmp, 21 insertelement, 9 inttoptr, 69 load, 81 mul, 6 phi, 1 ret, 1 sdiv, 2 select, 21 shufflevector, 1 store, 2 sub, 1 urem

; residual, full, KernelSpec
; sha256 5a04b975776ead1369803f4032e006261a29094a8a7a3853a776d6217f5ee812
define void @kernel(ptr noalias readonly %args) #0 {
  69 add, 18 br, 12 call, 12 fadd, 4 fsub, 82 getelementptr, 10 icmp, 16 insertelement, 10 inttoptr, 76 load, 85 mul, 6 phi, 1 ret, 1 sdiv, 2 select, 16 shufflevector, 1 store, 2 sub, 1 urem

; new, full, KernelSpec
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
  %v17 = icmp ne i64 1, 0
  %v18 = getelementptr i64, ptr %args, i64 9
  %v19 = load i64, ptr %v18
  %v20 = inttoptr i64 %v19 to ptr
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = getelementptr i64, ptr %args, i64 11
  %v24 = load i64, ptr %v23
  %v25 = getelementptr i64, ptr %args, i64 12
  %v26 = load i64, ptr %v25
  %v27 = getelementptr i64, ptr %args, i64 13
  %v28 = load i64, ptr %v27
  %v29 = getelementptr i64, ptr %args, i64 14
  %v30 = load i64, ptr %v29
  %v31 = inttoptr i64 %v30 to ptr
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = getelementptr i64, ptr %args, i64 16
  %v35 = load i64, ptr %v34
  %v36 = getelementptr i64, ptr %args, i64 17
  %v37 = load i64, ptr %v36
  %v38 = getelementptr i64, ptr %args, i64 18
  %v39 = load i64, ptr %v38
  %v40 = getelementptr i64, ptr %args, i64 19
  %v41 = load i64, ptr %v40
  %v42 = inttoptr i64 %v41 to ptr
  %v43 = getelementptr i64, ptr %args, i64 20
  %v44 = load i64, ptr %v43
  %v45 = getelementptr i64, ptr %args, i64 21
  %v46 = load i64, ptr %v45
  %v47 = getelementptr i64, ptr %args, i64 22
  %v48 = load i64, ptr %v47
  %v49 = getelementptr i64, ptr %args, i64 23
  %v50 = load i64, ptr %v49
  %v51 = getelementptr i64, ptr %args, i64 24
  %v52 = load i64, ptr %v51
  %v53 = inttoptr i64 %v52 to ptr
  %v54 = getelementptr i64, ptr %args, i64 25
  %v55 = load i64, ptr %v54
  %v56 = getelementptr i64, ptr %args, i64 26
  %v57 = load i64, ptr %v56
  %v58 = getelementptr i64, ptr %args, i64 27
  %v59 = load i64, ptr %v58
  %v60 = getelementptr i64, ptr %args, i64 28
  %v61 = load i64, ptr %v60
  %v62 = getelementptr i64, ptr %args, i64 29
  %v63 = load i64, ptr %v62
  %v64 = inttoptr i64 %v63 to ptr
  %v65 = getelementptr i64, ptr %args, i64 30
  %v66 = load i64, ptr %v65
  %v67 = getelementptr i64, ptr %args, i64 31
  %v68 = load i64, ptr %v67
  %v69 = getelementptr i64, ptr %args, i64 32
  %v70 = load i64, ptr %v69
  %v71 = getelementptr i64, ptr %args, i64 33
  %v72 = load i64, ptr %v71
  %v73 = getelementptr i64, ptr %args, i64 34
  %v74 = load i64, ptr %v73
  %v75 = inttoptr i64 %v74 to ptr
  %v76 = getelementptr i64, ptr %args, i64 35
  %v77 = load i64, ptr %v76
  %v78 = getelementptr i64, ptr %args, i64 36
  %v79 = load i64, ptr %v78
  %v80 = getelementptr i64, ptr %args, i64 37
  %v81 = load i64, ptr %v80
  %v82 = getelementptr i64, ptr %args, i64 38
  %v83 = load i64, ptr %v82
  br label %b84
b84:
  %v87 = phi i64 [ 0, %entry ], [ %v197, %b94 ]
  %v88 = icmp slt i64 %v87, %v2
  br i1 %v88, label %b85, label %b86
b85:
  %v89 = mul nsw i64 %v87, %v55
  %v90 = getelementptr i8, ptr %v53, i64 %v89
  %v91 = load double, ptr %v90, align 1
  br label %b92
b92:
  %v95 = phi i64 [ 0, %b85 ], [ %v196, %b102 ]
  %v96 = icmp slt i64 %v95, %v4
  br i1 %v96, label %b93, label %b94
b93:
  %v97 = mul nsw i64 %v95, %v68
  %v98 = getelementptr i8, ptr %v64, i64 %v97
  %v99 = load double, ptr %v98, align 1
  br label %b100
b100:
  %v103 = phi i64 [ 0, %b93 ], [ %v195, %b155 ]
  %v104 = icmp slt i64 %v103, %v6
  br i1 %v104, label %b101, label %b102
b101:
  %v105 = urem i64 %v8, 4
  %v106 = sub i64 %v8, %v105
  %v107 = mul nsw i64 %v103, %v37
  %v108 = getelementptr i8, ptr %v31, i64 %v107
  %v109 = load double, ptr %v108, align 1
  br label %b110
b110:
  %v113 = phi i64 [ 0, %b101 ], [ %v145, %b111 ]
  %v114 = icmp slt i64 %v113, %v106
  br i1 %v114, label %b111, label %b112
b111:
  %v115 = mul nsw i64 %v87, %v22
  %v116 = mul nsw i64 %v95, %v24
  %v117 = add nsw i64 %v115, %v116
  %v118 = mul nsw i64 %v103, %v26
  %v119 = add nsw i64 %v117, %v118
  %v120 = mul nsw i64 %v113, %v28
  %v121 = add nsw i64 %v119, %v120
  %v122 = getelementptr i8, ptr %v20, i64 %v121
  %v123 = load <4 x double>, ptr %v122, align 1
  %v124 = mul nsw i64 %v113, %v50
  %v125 = getelementptr i8, ptr %v42, i64 %v124
  %v126 = load <4 x double>, ptr %v125, align 1
  %v127 = insertelement <4 x double> poison, double %v109, i64 0
  %v128 = shufflevector <4 x double> %v127, <4 x double> poison, <4 x i32> zeroinitializer
  %v129 = fadd contract <4 x double> %v128, %v126
  %v130 = insertelement <4 x double> poison, double %v91, i64 0
  %v131 = shufflevector <4 x double> %v130, <4 x double> poison, <4 x i32> zeroinitializer
  %v132 = fsub contract <4 x double> %v129, %v131
  %v133 = insertelement <4 x double> poison, double %v99, i64 0
  %v134 = shufflevector <4 x double> %v133, <4 x double> poison, <4 x i32> zeroinitializer
  %v135 = fsub contract <4 x double> %v132, %v134
  %v136 = fdiv contract <4 x double> %v123, %v135
  %v137 = mul nsw i64 %v87, %v77
  %v138 = mul nsw i64 %v95, %v79
  %v139 = add nsw i64 %v137, %v138
  %v140 = mul nsw i64 %v103, %v81
  %v141 = add nsw i64 %v139, %v140
  %v142 = mul nsw i64 %v113, %v83
  %v143 = add nsw i64 %v141, %v142
  %v144 = getelementptr i8, ptr %v75, i64 %v143
  store <4 x double> %v136, ptr %v144, align 1
  %v145 = add nsw i64 %v113, 4
  br label %b110
b112:
  %v146 = sub i64 %v8, %v106
  %v147 = icmp sgt i64 %v146, 0
  %v148 = add i64 %v106, 4
  %v149 = select i1 %v147, i64 %v148, i64 %v106
  %v150 = insertelement <4 x i64> poison, i64 %v146, i64 0
  %v151 = shufflevector <4 x i64> %v150, <4 x i64> poison, <4 x i32> zeroinitializer
  %v152 = icmp slt <4 x i64> <i64 0, i64 1, i64 2, i64 3>, %v151
  br label %b153
b153:
  %v156 = phi i64 [ %v106, %b112 ], [ %v194, %b154 ]
  %v157 = icmp slt i64 %v156, %v149
  br i1 %v157, label %b154, label %b155
b154:
  %v158 = mul nsw i64 %v87, %v22
  %v159 = mul nsw i64 %v95, %v24
  %v160 = add nsw i64 %v158, %v159
  %v161 = mul nsw i64 %v103, %v26
  %v162 = add nsw i64 %v160, %v161
  %v163 = mul nsw i64 %v156, %v28
  %v164 = add nsw i64 %v162, %v163
  %v165 = getelementptr i8, ptr %v20, i64 %v164
  %v166 = load double, ptr %v165, align 1
  %v167 = insertelement <4 x double> poison, double %v166, i64 0
  %v168 = shufflevector <4 x double> %v167, <4 x double> poison, <4 x i32> zeroinitializer
  %v169 = call <4 x double> @llvm.masked.load.v4f64.p0(ptr %v165, i32 1, <4 x i1> %v152, <4 x double> %v168)
  %v170 = mul nsw i64 %v156, %v50
  %v171 = getelementptr i8, ptr %v42, i64 %v170
  %v172 = load double, ptr %v171, align 1
  %v173 = insertelement <4 x double> poison, double %v172, i64 0
  %v174 = shufflevector <4 x double> %v173, <4 x double> poison, <4 x i32> zeroinitializer
  %v175 = call <4 x double> @llvm.masked.load.v4f64.p0(ptr %v171, i32 1, <4 x i1> %v152, <4 x double> %v174)
  %v176 = insertelement <4 x double> poison, double %v109, i64 0
  %v177 = shufflevector <4 x double> %v176, <4 x double> poison, <4 x i32> zeroinitializer
  %v178 = fadd contract <4 x double> %v177, %v175
  %v179 = insertelement <4 x double> poison, double %v91, i64 0
  %v180 = shufflevector <4 x double> %v179, <4 x double> poison, <4 x i32> zeroinitializer
  %v181 = fsub contract <4 x double> %v178, %v180
  %v182 = insertelement <4 x double> poison, double %v99, i64 0
  %v183 = shufflevector <4 x double> %v182, <4 x double> poison, <4 x i32> zeroinitializer
  %v184 = fsub contract <4 x double> %v181, %v183
  %v185 = fdiv contract <4 x double> %v169, %v184
  %v186 = mul nsw i64 %v87, %v77
  %v187 = mul nsw i64 %v95, %v79
  %v188 = add nsw i64 %v186, %v187
  %v189 = mul nsw i64 %v103, %v81
  %v190 = add nsw i64 %v188, %v189
  %v191 = mul nsw i64 %v156, %v83
  %v192 = add nsw i64 %v190, %v191
  %v193 = getelementptr i8, ptr %v75, i64 %v192
  call void @llvm.masked.store.v4f64.p0(<4 x double> %v185, ptr %v193, i32 1, <4 x i1> %v152)
  %v194 = add nsw i64 %v156, 4
  br label %b153
b155:
  %v195 = add nsw i64 %v103, 1
  br label %b100
b102:
  %v196 = add nsw i64 %v95, 1
  br label %b92
b94:
  %v197 = add nsw i64 %v87, 1
  br label %b84
b86:
  ret void
}
declare <4 x double> @llvm.masked.load.v4f64.p0(ptr, i32, <4 x i1>, <4 x double>)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, i32, <4 x i1>)
!0 = !{i32 1}

; energy.sum, full, KernelSpec
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
  %v17 = icmp ne i64 1, 0
  %v18 = getelementptr i64, ptr %args, i64 9
  %v19 = load i64, ptr %v18
  %v20 = inttoptr i64 %v19 to ptr
  %v21 = getelementptr i64, ptr %args, i64 10
  %v22 = load i64, ptr %v21
  %v23 = getelementptr i64, ptr %args, i64 11
  %v24 = load i64, ptr %v23
  %v25 = getelementptr i64, ptr %args, i64 12
  %v26 = load i64, ptr %v25
  %v27 = getelementptr i64, ptr %args, i64 13
  %v28 = load i64, ptr %v27
  %v29 = getelementptr i64, ptr %args, i64 14
  %v30 = load i64, ptr %v29
  %v31 = inttoptr i64 %v30 to ptr
  %v32 = getelementptr i64, ptr %args, i64 15
  %v33 = load i64, ptr %v32
  %v34 = getelementptr i64, ptr %args, i64 16
  %v35 = load i64, ptr %v34
  %v36 = getelementptr i64, ptr %args, i64 17
  %v37 = load i64, ptr %v36
  %v38 = getelementptr i64, ptr %args, i64 18
  %v39 = load i64, ptr %v38
  %v40 = getelementptr i64, ptr %args, i64 19
  %v41 = load i64, ptr %v40
  %v42 = inttoptr i64 %v41 to ptr
  %v43 = getelementptr i64, ptr %args, i64 20
  %v44 = load i64, ptr %v43
  %v45 = getelementptr i64, ptr %args, i64 21
  %v46 = load i64, ptr %v45
  %v47 = getelementptr i64, ptr %args, i64 22
  %v48 = load i64, ptr %v47
  %v49 = getelementptr i64, ptr %args, i64 23
  %v50 = load i64, ptr %v49
  br label %b51
b51:
  %v54 = phi i64 [ 0, %entry ], [ %v159, %b61 ]
  %v55 = phi <8 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %entry ], [ %v158, %b61 ]
  %v56 = icmp slt i64 %v54, %v2
  br i1 %v56, label %b52, label %b53
b52:
  %v57 = add i64 %v54, 2
  %v58 = call i64 @llvm.smin.i64(i64 %v57, i64 %v2)
  br label %b59
b59:
  %v62 = phi i64 [ %v54, %b52 ], [ %v157, %b67 ]
  %v63 = phi <8 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %b52 ], [ %v69, %b67 ]
  %v64 = icmp slt i64 %v62, %v58
  br i1 %v64, label %b60, label %b61
b60:
  br label %b65
b65:
  %v68 = phi i64 [ 0, %b60 ], [ %v156, %b73 ]
  %v69 = phi <8 x double> [ %v63, %b60 ], [ %v75, %b73 ]
  %v70 = icmp slt i64 %v68, %v6
  br i1 %v70, label %b66, label %b67
b66:
  br label %b71
b71:
  %v74 = phi i64 [ 0, %b66 ], [ %v155, %b115 ]
  %v75 = phi <8 x double> [ %v69, %b66 ], [ %v117, %b115 ]
  %v76 = icmp slt i64 %v74, %v8
  br i1 %v76, label %b72, label %b73
b72:
  %v77 = urem i64 %v4, 8
  %v78 = sub i64 %v4, %v77
  br label %b79
b79:
  %v82 = phi i64 [ 0, %b72 ], [ %v112, %b80 ]
  %v83 = phi <8 x double> [ %v75, %b72 ], [ %v111, %b80 ]
  %v84 = icmp slt i64 %v82, %v78
  br i1 %v84, label %b80, label %b81
b80:
  %v85 = mul nsw i64 %v62, %v22
  %v86 = mul nsw i64 %v82, %v24
  %v87 = add nsw i64 %v85, %v86
  %v88 = mul nsw i64 %v68, %v26
  %v89 = add nsw i64 %v87, %v88
  %v90 = mul nsw i64 %v74, %v28
  %v91 = add nsw i64 %v89, %v90
  %v92 = getelementptr i8, ptr %v20, i64 %v91
  %v93 = load <8 x double>, ptr %v92, align 1
  %v94 = mul nsw i64 %v62, %v33
  %v95 = mul nsw i64 %v82, %v35
  %v96 = add nsw i64 %v94, %v95
  %v97 = mul nsw i64 %v68, %v37
  %v98 = add nsw i64 %v96, %v97
  %v99 = mul nsw i64 %v74, %v39
  %v100 = add nsw i64 %v98, %v99
  %v101 = getelementptr i8, ptr %v31, i64 %v100
  %v102 = load double, ptr %v101, align 1
  %v103 = insertelement <8 x double> poison, double %v102, i64 0
  %v104 = shufflevector <8 x double> %v103, <8 x double> poison, <8 x i32> zeroinitializer
  %v105 = insertelement <8 x i64> poison, i64 %v35, i64 0
  %v106 = shufflevector <8 x i64> %v105, <8 x i64> poison, <8 x i32> zeroinitializer
  %v107 = mul <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v106
  %v108 = getelementptr i8, ptr %v101, <8 x i64> %v107
  %v109 = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> %v108, i32 1, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>, <8 x double> %v104)
  %v110 = fmul contract <8 x double> %v93, %v109
  %v111 = fadd contract <8 x double> %v83, %v110
  %v112 = add nsw i64 %v82, 8
  br label %b79
b81:
  br label %b113
b113:
  %v116 = phi i64 [ %v78, %b81 ], [ %v154, %b114 ]
  %v117 = phi <8 x double> [ %v83, %b81 ], [ %v153, %b114 ]
  %v118 = icmp slt i64 %v116, %v4
  br i1 %v118, label %b114, label %b115
b114:
  %v119 = sub i64 %v4, %v116
  %v120 = insertelement <8 x i64> poison, i64 %v119, i64 0
  %v121 = shufflevector <8 x i64> %v120, <8 x i64> poison, <8 x i32> zeroinitializer
  %v122 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v121
  %v123 = mul nsw i64 %v62, %v22
  %v124 = mul nsw i64 %v116, %v24
  %v125 = add nsw i64 %v123, %v124
  %v126 = mul nsw i64 %v68, %v26
  %v127 = add nsw i64 %v125, %v126
  %v128 = mul nsw i64 %v74, %v28
  %v129 = add nsw i64 %v127, %v128
  %v130 = getelementptr i8, ptr %v20, i64 %v129
  %v131 = load double, ptr %v130, align 1
  %v132 = insertelement <8 x double> poison, double %v131, i64 0
  %v133 = shufflevector <8 x double> %v132, <8 x double> poison, <8 x i32> zeroinitializer
  %v134 = call <8 x double> @llvm.masked.load.v8f64.p0(ptr %v130, i32 1, <8 x i1> %v122, <8 x double> %v133)
  %v135 = mul nsw i64 %v62, %v33
  %v136 = mul nsw i64 %v116, %v35
  %v137 = add nsw i64 %v135, %v136
  %v138 = mul nsw i64 %v68, %v37
  %v139 = add nsw i64 %v137, %v138
  %v140 = mul nsw i64 %v74, %v39
  %v141 = add nsw i64 %v139, %v140
  %v142 = getelementptr i8, ptr %v31, i64 %v141
  %v143 = load double, ptr %v142, align 1
  %v144 = insertelement <8 x double> poison, double %v143, i64 0
  %v145 = shufflevector <8 x double> %v144, <8 x double> poison, <8 x i32> zeroinitializer
  %v146 = insertelement <8 x i64> poison, i64 %v35, i64 0
  %v147 = shufflevector <8 x i64> %v146, <8 x i64> poison, <8 x i32> zeroinitializer
  %v148 = mul <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v147
  %v149 = getelementptr i8, ptr %v142, <8 x i64> %v148
  %v150 = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> %v149, i32 1, <8 x i1> %v122, <8 x double> %v145)
  %v151 = fmul contract <8 x double> %v134, %v150
  %v152 = fadd contract <8 x double> %v117, %v151
  %v153 = select <8 x i1> %v122, <8 x double> %v152, <8 x double> %v117
  %v154 = add nsw i64 %v116, 8
  br label %b113
b115:
  %v155 = add nsw i64 %v74, 1
  br label %b71
b73:
  %v156 = add nsw i64 %v68, 1
  br label %b65
b67:
  %v157 = add nsw i64 %v62, 1
  br label %b59
b61:
  %v158 = fadd contract <8 x double> %v55, %v63
  %v159 = add nsw i64 %v54, 2
  br label %b51
b53:
  %v160 = shufflevector <8 x double> %v55, <8 x double> poison, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3>
  %v161 = fadd contract <8 x double> %v55, %v160
  %v162 = shufflevector <8 x double> %v161, <8 x double> poison, <8 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5>
  %v163 = fadd contract <8 x double> %v161, %v162
  %v164 = shufflevector <8 x double> %v163, <8 x double> poison, <8 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6>
  %v165 = fadd contract <8 x double> %v163, %v164
  %v166 = extractelement <8 x double> %v165, i64 0
  store double %v166, ptr %v42, align 1
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x double>)
declare <8 x double> @llvm.masked.load.v8f64.p0(ptr, i32, <8 x i1>, <8 x double>)
!0 = !{i32 1}

; energy.sum, accumulate, KernelSpec
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
  %v19 = icmp ne i64 %v18, 0
  %v20 = getelementptr i64, ptr %args, i64 9
  %v21 = load i64, ptr %v20
  %v22 = inttoptr i64 %v21 to ptr
  %v23 = getelementptr i64, ptr %args, i64 10
  %v24 = load i64, ptr %v23
  %v25 = getelementptr i64, ptr %args, i64 11
  %v26 = load i64, ptr %v25
  %v27 = getelementptr i64, ptr %args, i64 12
  %v28 = load i64, ptr %v27
  %v29 = getelementptr i64, ptr %args, i64 13
  %v30 = load i64, ptr %v29
  %v31 = getelementptr i64, ptr %args, i64 14
  %v32 = load i64, ptr %v31
  %v33 = inttoptr i64 %v32 to ptr
  %v34 = getelementptr i64, ptr %args, i64 15
  %v35 = load i64, ptr %v34
  %v36 = getelementptr i64, ptr %args, i64 16
  %v37 = load i64, ptr %v36
  %v38 = getelementptr i64, ptr %args, i64 17
  %v39 = load i64, ptr %v38
  %v40 = getelementptr i64, ptr %args, i64 18
  %v41 = load i64, ptr %v40
  %v42 = getelementptr i64, ptr %args, i64 19
  %v43 = load i64, ptr %v42
  %v44 = inttoptr i64 %v43 to ptr
  %v45 = getelementptr i64, ptr %args, i64 20
  %v46 = load i64, ptr %v45
  %v47 = getelementptr i64, ptr %args, i64 21
  %v48 = load i64, ptr %v47
  %v49 = getelementptr i64, ptr %args, i64 22
  %v50 = load i64, ptr %v49
  %v51 = getelementptr i64, ptr %args, i64 23
  %v52 = load i64, ptr %v51
  br label %b53
b53:
  %v56 = phi i64 [ 0, %entry ], [ %v161, %b63 ]
  %v57 = phi <8 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %entry ], [ %v160, %b63 ]
  %v58 = icmp slt i64 %v56, %v2
  br i1 %v58, label %b54, label %b55
b54:
  %v59 = add i64 %v56, 2
  %v60 = call i64 @llvm.smin.i64(i64 %v59, i64 %v2)
  br label %b61
b61:
  %v64 = phi i64 [ %v56, %b54 ], [ %v159, %b69 ]
  %v65 = phi <8 x double> [ <double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000, double 0x0000000000000000>, %b54 ], [ %v71, %b69 ]
  %v66 = icmp slt i64 %v64, %v60
  br i1 %v66, label %b62, label %b63
b62:
  br label %b67
b67:
  %v70 = phi i64 [ 0, %b62 ], [ %v158, %b75 ]
  %v71 = phi <8 x double> [ %v65, %b62 ], [ %v77, %b75 ]
  %v72 = icmp slt i64 %v70, %v6
  br i1 %v72, label %b68, label %b69
b68:
  br label %b73
b73:
  %v76 = phi i64 [ 0, %b68 ], [ %v157, %b117 ]
  %v77 = phi <8 x double> [ %v71, %b68 ], [ %v119, %b117 ]
  %v78 = icmp slt i64 %v76, %v8
  br i1 %v78, label %b74, label %b75
b74:
  %v79 = urem i64 %v4, 8
  %v80 = sub i64 %v4, %v79
  br label %b81
b81:
  %v84 = phi i64 [ 0, %b74 ], [ %v114, %b82 ]
  %v85 = phi <8 x double> [ %v77, %b74 ], [ %v113, %b82 ]
  %v86 = icmp slt i64 %v84, %v80
  br i1 %v86, label %b82, label %b83
b82:
  %v87 = mul nsw i64 %v64, %v24
  %v88 = mul nsw i64 %v84, %v26
  %v89 = add nsw i64 %v87, %v88
  %v90 = mul nsw i64 %v70, %v28
  %v91 = add nsw i64 %v89, %v90
  %v92 = mul nsw i64 %v76, %v30
  %v93 = add nsw i64 %v91, %v92
  %v94 = getelementptr i8, ptr %v22, i64 %v93
  %v95 = load <8 x double>, ptr %v94, align 1
  %v96 = mul nsw i64 %v64, %v35
  %v97 = mul nsw i64 %v84, %v37
  %v98 = add nsw i64 %v96, %v97
  %v99 = mul nsw i64 %v70, %v39
  %v100 = add nsw i64 %v98, %v99
  %v101 = mul nsw i64 %v76, %v41
  %v102 = add nsw i64 %v100, %v101
  %v103 = getelementptr i8, ptr %v33, i64 %v102
  %v104 = load double, ptr %v103, align 1
  %v105 = insertelement <8 x double> poison, double %v104, i64 0
  %v106 = shufflevector <8 x double> %v105, <8 x double> poison, <8 x i32> zeroinitializer
  %v107 = insertelement <8 x i64> poison, i64 %v37, i64 0
  %v108 = shufflevector <8 x i64> %v107, <8 x i64> poison, <8 x i32> zeroinitializer
  %v109 = mul <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v108
  %v110 = getelementptr i8, ptr %v103, <8 x i64> %v109
  %v111 = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> %v110, i32 1, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1, i1 1>, <8 x double> %v106)
  %v112 = fmul contract <8 x double> %v95, %v111
  %v113 = fadd contract <8 x double> %v85, %v112
  %v114 = add nsw i64 %v84, 8
  br label %b81
b83:
  br label %b115
b115:
  %v118 = phi i64 [ %v80, %b83 ], [ %v156, %b116 ]
  %v119 = phi <8 x double> [ %v85, %b83 ], [ %v155, %b116 ]
  %v120 = icmp slt i64 %v118, %v4
  br i1 %v120, label %b116, label %b117
b116:
  %v121 = sub i64 %v4, %v118
  %v122 = insertelement <8 x i64> poison, i64 %v121, i64 0
  %v123 = shufflevector <8 x i64> %v122, <8 x i64> poison, <8 x i32> zeroinitializer
  %v124 = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v123
  %v125 = mul nsw i64 %v64, %v24
  %v126 = mul nsw i64 %v118, %v26
  %v127 = add nsw i64 %v125, %v126
  %v128 = mul nsw i64 %v70, %v28
  %v129 = add nsw i64 %v127, %v128
  %v130 = mul nsw i64 %v76, %v30
  %v131 = add nsw i64 %v129, %v130
  %v132 = getelementptr i8, ptr %v22, i64 %v131
  %v133 = load double, ptr %v132, align 1
  %v134 = insertelement <8 x double> poison, double %v133, i64 0
  %v135 = shufflevector <8 x double> %v134, <8 x double> poison, <8 x i32> zeroinitializer
  %v136 = call <8 x double> @llvm.masked.load.v8f64.p0(ptr %v132, i32 1, <8 x i1> %v124, <8 x double> %v135)
  %v137 = mul nsw i64 %v64, %v35
  %v138 = mul nsw i64 %v118, %v37
  %v139 = add nsw i64 %v137, %v138
  %v140 = mul nsw i64 %v70, %v39
  %v141 = add nsw i64 %v139, %v140
  %v142 = mul nsw i64 %v76, %v41
  %v143 = add nsw i64 %v141, %v142
  %v144 = getelementptr i8, ptr %v33, i64 %v143
  %v145 = load double, ptr %v144, align 1
  %v146 = insertelement <8 x double> poison, double %v145, i64 0
  %v147 = shufflevector <8 x double> %v146, <8 x double> poison, <8 x i32> zeroinitializer
  %v148 = insertelement <8 x i64> poison, i64 %v37, i64 0
  %v149 = shufflevector <8 x i64> %v148, <8 x i64> poison, <8 x i32> zeroinitializer
  %v150 = mul <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %v149
  %v151 = getelementptr i8, ptr %v144, <8 x i64> %v150
  %v152 = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> %v151, i32 1, <8 x i1> %v124, <8 x double> %v147)
  %v153 = fmul contract <8 x double> %v136, %v152
  %v154 = fadd contract <8 x double> %v119, %v153
  %v155 = select <8 x i1> %v124, <8 x double> %v154, <8 x double> %v119
  %v156 = add nsw i64 %v118, 8
  br label %b115
b117:
  %v157 = add nsw i64 %v76, 1
  br label %b73
b75:
  %v158 = add nsw i64 %v70, 1
  br label %b67
b69:
  %v159 = add nsw i64 %v64, 1
  br label %b61
b63:
  %v160 = fadd contract <8 x double> %v57, %v65
  %v161 = add nsw i64 %v56, 2
  br label %b53
b55:
  %v162 = shufflevector <8 x double> %v57, <8 x double> poison, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 0, i32 1, i32 2, i32 3>
  %v163 = fadd contract <8 x double> %v57, %v162
  %v164 = shufflevector <8 x double> %v163, <8 x double> poison, <8 x i32> <i32 2, i32 3, i32 0, i32 1, i32 6, i32 7, i32 4, i32 5>
  %v165 = fadd contract <8 x double> %v163, %v164
  %v166 = shufflevector <8 x double> %v165, <8 x double> poison, <8 x i32> <i32 1, i32 0, i32 3, i32 2, i32 5, i32 4, i32 7, i32 6>
  %v167 = fadd contract <8 x double> %v165, %v166
  %v168 = extractelement <8 x double> %v167, i64 0
  br i1 %v19, label %b169, label %b170
b169:
  br label %b171
b170:
  %v172 = load double, ptr %v44, align 1
  %v173 = fadd contract double %v172, %v168
  br label %b171
b171:
  %v174 = phi double [ %v168, %b169 ], [ %v173, %b170 ]
  store double %v174, ptr %v44, align 1
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x double>)
declare <8 x double> @llvm.masked.load.v8f64.p0(ptr, i32, <8 x i1>, <8 x double>)
!0 = !{i32 1}

; energy.sum, finalize, KernelSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = icmp ne i64 1, 0
  %v2 = getelementptr i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2
  %v4 = inttoptr i64 %v3 to ptr
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = inttoptr i64 %v6 to ptr
  %v8 = load double, ptr %v4, align 1
  store double %v8, ptr %v7, align 1
  ret void
}

!0 = !{i32 1}

; energy, full, KernelSpec
define void @kernel(ptr noalias readonly %args) #0 {
entry:
  %v1 = icmp ne i64 1, 0
  %v2 = getelementptr i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2
  %v4 = inttoptr i64 %v3 to ptr
  %v5 = getelementptr i64, ptr %args, i64 2
  %v6 = load i64, ptr %v5
  %v7 = inttoptr i64 %v6 to ptr
  %v8 = load double, ptr %v4, align 1
  %v9 = fmul contract double 0x3FD0000000000000, %v8
  store double %v9, ptr %v7, align 1
  ret void
}

!0 = !{i32 1}

