"""Models of files that answer before they are read. These modules import little, so that the first answer comes early."""
