"""What compiled kernels need at run time: TVM's runtime, and our own threads."""
