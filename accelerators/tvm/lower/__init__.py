"""From a body to kernels: one of ours if one fits, else what TVM's importer makes."""
