"""Finds the op that makes a model wrong on a device, in the smallest graph that still shows the error."""
