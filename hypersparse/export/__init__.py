"""Export of trained networks: small files, shrunk networks, ONNX and C."""
