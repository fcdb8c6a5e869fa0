"""Steps of the kernel that are not sums over nonzero weights: a class for each, with its words and its check."""

from collections.abc import Mapping

from hypersparse_runtime.registry import classes_by_name
from hypersparse_runtime.sparse_layers import ValueStep
from hypersparse_runtime.value_steps import elements, sums, tokens

VALUE_STEPS: Mapping[str, type[ValueStep]] = classes_by_name(ValueStep, (elements, sums, tokens), key="kind")
