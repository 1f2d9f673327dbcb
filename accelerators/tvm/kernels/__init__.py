"""Our own kernels: a language to write them in, and one package for each kind."""
