"""Thin bindings to other people's programs; each needs the extra of its name."""
