"""Files of other people against onnxruntime."""
