"""Values of CACHE_DIR that name no folder. This module imports nothing, since a model that answers at once reads it."""

OFF = frozenset(("", "0", "FALSE", "NO", "OFF"))
"""Values that disable the cache."""

ON = frozenset(("1", "TRUE", "YES", "ON"))
"""Values for the default folder."""
