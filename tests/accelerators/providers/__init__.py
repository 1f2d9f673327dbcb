"""A foreign execution provider, which onnxruntime loads from a library, and the tests of such devices."""
