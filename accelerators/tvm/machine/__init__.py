"""TVM with its compiler, and the machine that kernels are compiled for."""
