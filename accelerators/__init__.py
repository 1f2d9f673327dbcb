"""The plugin interface, one file (or folder) per device, HETERO, the compiled model that runs."""
