"""All templates, in the order in which they are asked."""

__all__: list[str] = []
