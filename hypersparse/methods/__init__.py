"""One file per method; the file name is the method's name, and this folder is the registry."""

from hypersparse.methods.registry import Unimported, describe, find, first_sentence, names

__all__ = ["Unimported", "describe", "find", "first_sentence", "names"]
