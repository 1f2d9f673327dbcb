"""Dynamic sizes: the relations between them, and subgraphs that are compiled once for all sizes."""
