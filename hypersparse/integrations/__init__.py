"""Thin bindings to other programs; each needs the extra of its name."""
