"""Rules by which calls of PyTorch become operations on values of any shape, by the call's name without `aten.`."""

from collections.abc import Mapping
from types import MappingProxyType

from hypersparse.export.rules import elementwise, resampling, shaping, tokens
from hypersparse.export.rules.shaping import Rule

RULES: Mapping[str, Rule] = MappingProxyType({**shaping.RULES, **elementwise.RULES, **tokens.RULES, **resampling.RULES})
