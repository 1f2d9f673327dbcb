"""Arrays in memory: how they lie, who owns them, and equal weights held once."""
