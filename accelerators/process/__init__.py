"""What belongs to the process or its files: forks, the interpreter's end, writing a file whole."""
