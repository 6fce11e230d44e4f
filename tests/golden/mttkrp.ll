; M.map, full, KernelSpec
; sha256 95dfddad64eff924e5cbef0ac6257983e05e38f44c96614e6b49ac69be3bce45
define void @kernel(ptr noalias readonly %args) #0 {
  112 add, 24 br, 19 call, 18 fmul, 84 getelementptr, 12 icmp, 39 insertelement, 3 inttoptr, 54 load, 133 mul, 8 phi, 1 ret, 1 sdiv, 2 select, 63 shufflevector, 9 store, 4 sub, 3 urem

; M, full, PackedSpec
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

; M, full, KernelSpec
; sha256 6be39aac63a572bd791e252c38f2c2ff3784ebe7248ee7105dac622d76aade5f
define void @kernel(ptr noalias readonly %args) #0 {
  185 add, 66 br, 24 call, 25 extractelement, 100 fadd, 50 fmul, 88 getelementptr, 27 icmp, 24 insertelement, 3 inttoptr, 63 load, 170 mul, 122 phi, 1 ret, 25 select, 69 shufflevector, 25 store, 11 sub, 7 urem

; M, accumulate, KernelSpec
; sha256 dba11cd3eb79128355bf03a1a21aeb0296aeb6ce3db97c4aa6eb2fa78d50790a
define void @kernel(ptr noalias readonly %args) #0 {
  240 add, 141 br, 24 call, 25 extractelement, 125 fadd, 50 fmul, 114 getelementptr, 27 icmp, 24 insertelement, 3 inttoptr, 89 load, 220 mul, 147 phi, 1 ret, 25 select, 69 shufflevector, 25 store, 11 sub, 7 urem

; M, finalize, KernelSpec
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

