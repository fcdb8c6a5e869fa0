"""Steps of the kernel that are not sums over nonzero weights: a class for each, with its words and its check."""

from collections.abc import Mapping
from types import MappingProxyType

from hypersparse_runtime.sparse_layers import ValueStep
from hypersparse_runtime.value_steps import elements, sums, tokens

_CLASSES = (each for module in (elements, sums, tokens) for each in vars(module).values())
VALUE_STEPS: Mapping[str, type[ValueStep]] = MappingProxyType(
    {each.kind: each for each in _CLASSES if isinstance(each, type) and hasattr(each, "kind")}
)
