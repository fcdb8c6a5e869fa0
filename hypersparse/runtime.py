"""Sparse networks on the CPU without torch: `hypersparse_runtime`, which is also a package of its own."""

from hypersparse_runtime import FileError, Graph, GraphError, Node, SlowWarning, SparseModel

__all__ = ["FileError", "Graph", "GraphError", "Node", "SlowWarning", "SparseModel"]
