"""Defines what an accelerator is: the class that a plugin derives from, its keys, its names, and how it is asked."""
