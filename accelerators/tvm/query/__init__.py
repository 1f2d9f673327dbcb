"""Which ops the TVM devices run, decided by rules first, then by trials, optionally in a child process."""
