"""One file per method; the file name is the method's name, and this folder is the registry."""

from hypersparse.methods.registry import Unimported, find, names

__all__ = ["Unimported", "find", "names"]
