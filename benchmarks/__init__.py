"""Benchmarks of training and inference: engines of this package and of others, measured in one process."""
