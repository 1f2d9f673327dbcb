"""The fifteen models that the benchmarks run: made by script into a cache folder, with seeded random weights.

    python -m benchmarks.models [NAME ...] [--batch N] [--to FOLDER]      makes them; without a name, all

Nothing is downloaded but torch and transformers, for three models, into a virtual environment of their own."""

from __future__ import annotations

from benchmarks.models.files import FROM_TORCH, NAMES, Model, cache_folder, check, model, read_inputs

__all__ = ["FROM_TORCH", "NAMES", "Model", "cache_folder", "check", "model", "read_inputs"]
