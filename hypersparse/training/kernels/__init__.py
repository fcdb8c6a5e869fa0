"""Triton kernels of the training engine, and the layers that use them."""
