"""Tests that compile each case that they draw: a few, always the same ones; `make check-all` draws more, by chance."""

from __future__ import annotations

from hypothesis import settings

some = settings(max_examples=6 if settings.get_current_profile_name() == "same" else 40)
