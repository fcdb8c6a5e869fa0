"""Inference of sparse networks without torch: numpy and one small shared library."""
