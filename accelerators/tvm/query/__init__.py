"""Decides which ops the TVM devices run: by rules first, then by trials, in a child process where that is asked for."""
