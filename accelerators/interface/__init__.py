"""Defines an accelerator: the class that a plugin derives from, its configuration keys, its registration, and queries."""
