"""Finding what is wrong with a model on a device: which op, in the smallest graph that still shows it."""
