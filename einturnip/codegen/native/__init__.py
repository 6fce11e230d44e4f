"""Tile kernels as machine code: the join in LLVM IR, compiled apart, kept on disk, loaded without a compiler."""
