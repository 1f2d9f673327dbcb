"""Second-level bodies, which become one kernel each, and the values that they read."""
