"""The command line, `partita`: one verb per file, each with `configure(parser)` and `run(arguments, screen)`."""
