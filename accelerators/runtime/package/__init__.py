"""Export and import of compiled models: one file, read back without compiling."""
