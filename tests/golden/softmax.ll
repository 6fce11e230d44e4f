; Y, full, FusedRowSpec
; sha256 02fa97e30d3d5cf50ffceedc4759d3d5743b37279fb714fca32ed608dad30e40
define void @kernel(ptr noalias readonly %args) #0 {
  78 add, 44 and, 22 ashr, 40 bitcast, 69 br, 255 call, 6 extractelement, 38 fadd, 8 fdiv, 16 fmul, 32 fsub, 46 getelementptr, 38 icmp, 36 insertelement, 2 inttoptr, 38 load, 74 mul, 1 or, 58 phi, 1 ptrtoint, 1 ret, 30 select, 60 shufflevector, 6 store, 18 sub, 12 urem, 38 xor

