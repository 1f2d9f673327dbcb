"""Everything that compiled kernels need when they run: TVM's runtime, and our own threads."""
