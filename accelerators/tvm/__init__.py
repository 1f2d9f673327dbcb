"""The devices that TVM compiles for: `cpu` and `cuda`. This folder alone imports TVM, and only when one of them is asked for."""
