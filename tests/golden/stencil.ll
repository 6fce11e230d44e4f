; B, full, KernelSpec
; sha256 77f818eab5bb06c2b47d629b5ee00236e67b36c612ba0a49d8a4a1b9e9d55b46
define void @kernel(ptr noalias readonly %args) #0 {
  81 add, 6 and, 15 br, 20 call, 4 extractelement, 9 fadd, 3 fdiv, 38 getelementptr, 29 icmp, 29 insertelement, 5 inttoptr, 27 load, 31 mul, 5 phi, 1 ret, 9 select, 21 shufflevector, 2 store, 13 sub, 1 udiv, 2 urem

