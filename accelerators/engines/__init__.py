"""What engines that take ONNX models have in common."""
