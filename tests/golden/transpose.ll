; B, full, KernelSpec
; sha256 6037765c6795a285f166d9ff13283c47075da6c931b69865c1278c1d307ef6d8
define void @kernel(ptr noalias readonly %args) #0 {
  122 add, 2 and, 45 br, 39 call, 107 getelementptr, 23 icmp, 42 insertelement, 2 inttoptr, 47 load, 158 mul, 1 or, 14 phi, 1 ptrtoint, 1 ret, 2 sdiv, 4 select, 90 shufflevector, 18 store, 8 sub, 6 urem

