"""One file per method; the file name is the method's name, and this folder is the registry."""

from hypersparse.methods.registry import find, names

__all__ = ["find", "names"]
