"""Code about the process and its files: forks, the interpreter's end, and files that are written whole."""
