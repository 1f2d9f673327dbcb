"""Layouts of activations, chosen for the machine before kernels are formed."""
