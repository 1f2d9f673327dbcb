"""Values of CACHE_DIR that name no folder. This module imports nothing: a model that answers at once is asked for it."""

OFF = frozenset(("", "0", "FALSE", "NO", "OFF"))
"""Those that switch the cache off."""

ON = frozenset(("1", "TRUE", "YES", "ON"))
"""Those that mean the default folder."""
