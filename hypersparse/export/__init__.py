"""Trained networks for others: small files, shrunk networks, ONNX and C."""
