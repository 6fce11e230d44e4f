; B, full, KernelSpec
; sha256 d413ab0bbfad4ff268ca43ad4c92b16797486e535497279026f416269de4c9fd
define void @kernel(ptr noalias readonly %args) #0 {
  122 add, 2 and, 45 br, 39 call, 107 getelementptr, 23 icmp, 42 insertelement, 2 inttoptr, 47 load, 158 mul, 1 or, 14 phi, 1 ptrtoint, 1 ret, 2 sdiv, 4 select, 90 shufflevector, 18 store, 8 sub, 6 urem

