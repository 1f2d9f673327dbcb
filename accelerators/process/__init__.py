"""Process-level code: forks, interpreter exit, cores, and atomic files."""
