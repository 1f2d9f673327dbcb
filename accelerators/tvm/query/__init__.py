"""Which ops the TVM devices run: rules, then trials, in a child process where asked."""
