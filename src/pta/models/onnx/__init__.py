"""Image towers as ONNX graphs, and ONNX Runtime to run them."""
