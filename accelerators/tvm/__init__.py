"""Devices that TVM compiles for, such as `cpu` and `cuda`. Only this folder imports TVM, when one of them is first used."""
