"""What kernels of several kinds have in common."""
