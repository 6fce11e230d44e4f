; B, full, KernelSpec
; sha256 c899d003461c32f50d70e2674216c9b5745ad91557583ed543e703d29160fc5d
define void @kernel(ptr noalias readonly %args) #0 {
  87 add, 45 br, 7 call, 20 fadd, 20 fcmp, 61 getelementptr, 18 icmp, 23 insertelement, 3 inttoptr, 41 load, 86 mul, 35 phi, 1 ret, 21 select, 23 shufflevector, 15 store, 6 sub, 5 urem

; B, accumulate, KernelSpec
; sha256 fa5069d65f146d4b7c96cd75012427dd5325beb92d47f2fbadcd18efbb23b3e1
define void @kernel(ptr noalias readonly %args) #0 {
  124 add, 105 br, 12 call, 20 fadd, 60 fcmp, 82 getelementptr, 18 icmp, 28 insertelement, 3 inttoptr, 62 load, 126 mul, 55 phi, 1 ret, 61 select, 28 shufflevector, 15 store, 6 sub, 5 urem

; B, finalize, KernelSpec
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

