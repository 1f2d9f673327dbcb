"""Runtime support for compiled kernels: TVM's runtime, and our own threads."""
