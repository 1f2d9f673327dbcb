"""Models of files that answer before they are read. These modules import little: that is what makes the answer early."""
