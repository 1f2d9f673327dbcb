"""Decides which ops the TVM devices run: by rules first, then by trials, optionally in a child process."""
