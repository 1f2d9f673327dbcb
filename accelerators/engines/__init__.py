"""The code that engines which take ONNX models have in common."""
