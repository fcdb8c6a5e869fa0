"""Compression Position: the order in which training images are learned (section 4.5 of the paper)."""
