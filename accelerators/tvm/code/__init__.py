"""From scheduled kernels to machine code, for LLVM and for CUDA, and to a library."""
