"""Compares this repository's results with the paper and rebuilds its pages; not part of the package."""
