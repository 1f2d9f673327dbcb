"""Code shared by engines that take ONNX models."""
