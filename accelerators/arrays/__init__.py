"""Arrays in memory: layout, ownership, and sharing of equal weights."""
