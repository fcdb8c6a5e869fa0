"""Rules that translate calls of PyTorch to operations on values of any shape, by name without `aten.`."""

from collections.abc import Mapping
from types import MappingProxyType

from hypersparse.export.rules import elementwise, resampling, shaping, tokens
from hypersparse.export.rules.shaping import Rule

RULES: Mapping[str, Rule] = MappingProxyType({**shaping.RULES, **elementwise.RULES, **tokens.RULES, **resampling.RULES})
