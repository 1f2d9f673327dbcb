"""Who runs models, one module each, with one function:

    load(path, model, threads) -> call(inputs) -> outputs

The path is the ONNX file; `model` its name and batch, for those that have the model from elsewhere. The call takes NumPy arrays
by name and returns NumPy arrays; what an engine spends on taking them and giving them back counts. 0 threads means: on the GPU.

A module may run in a process of its own (`worker`), in an environment that has no Partita, so it imports its engine alone."""

from __future__ import annotations
