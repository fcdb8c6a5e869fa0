"""Inference of sparse networks without torch: numpy and one small shared library."""

from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import Graph, GraphError, Node
from hypersparse_runtime.sparse_model import SlowWarning, SparseModel

__all__ = ["FileError", "Graph", "GraphError", "Node", "SlowWarning", "SparseModel"]
