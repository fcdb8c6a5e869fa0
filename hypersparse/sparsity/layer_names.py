"""`LayerNames`: the weights that a name, a glob or a module type matches."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from torch import nn

from hypersparse.errors import OptionError

Pattern = str | type[nn.Module]  # "head", "blocks.*.mlp", "head.weight" or nn.Conv2d
# Where torch stores what it computes a weight from, now and in its older hooks.
COMPUTED = re.compile(r"(?:parametrizations\.(?P<name>\w+)\.\w+|(?P<old>weight)_(?:orig|v|g))$")


class LayerNames:
    """The names of a model's parameters and of the modules around them.

    >>> names = LayerNames(nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2)), "head": nn.Linear(2, 2)}))
    >>> sorted(names.matching(["bo*", nn.Sequential], "skip"))
    ['body.0.bias', 'body.0.weight']
    """

    def __init__(self, model: nn.Module) -> None:
        self.of: dict[int, str] = {id(parameter): name for name, parameter in model.named_parameters()}
        self.aliases: dict[str, list[str]] = {name: [] for name in self.of.values()}  # of tied weights several
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self.aliases[self.of[id(parameter)]].append(name)
        tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
        self.embeddings = {self.of[table] for table in tables & self.of.keys()}
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._paths = {
            name: {path for alias in aliases for path in _paths(alias)} for name, aliases in self.aliases.items()
        }

    def is_kind(self, path: str, pattern: Pattern) -> bool:
        """Whether a pattern means the module at this path itself."""
        return fnmatchcase(path, pattern) if isinstance(pattern, str) else isinstance(self._modules[path], pattern)

    def matching(
        self,
        patterns: Pattern | Iterable[Pattern],
        argument: str,
        left_out: Mapping[str, str] = MappingProxyType({}),
    ) -> set[str]:
        """The parameters that the patterns mean; an error where one means none, or none but those `left_out`."""
        if not isinstance(patterns, Iterable):
            patterns = [patterns]
        found: set[str] = set()
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            meant = self._meant(pattern, argument)
            if not meant - left_out.keys():
                first = min(meant, key=lambda name: (name.endswith("bias"), name))
                raise OptionError(
                    f"`{argument}` names {shown(pattern)}, where no weight is prunable: `{first}` is {left_out[first]}."
                )
            found |= meant - left_out.keys()
        return found

    def _meant(self, pattern: Pattern, argument: str) -> set[str]:
        if not isinstance(pattern, str | type):
            raise OptionError(f"`{argument}` holds names, globs or module types; got {pattern!r}.")
        meant = {name for name, paths in self._paths.items() if self._means(pattern, paths)}
        if meant:
            return meant
        if not isinstance(pattern, str):
            kinds = {type(module).__name__ for module in self._modules.values()}
            raise OptionError(f"`{argument}` names {shown(pattern)}; the model has {', '.join(sorted(kinds))}.")
        # `block.*.mlp` is near `blocks.0.mlp` as `blocks.*.mlp`.
        known = {name for paths in self._paths.values() for name in paths if name}
        known |= {re.sub(r"\d+", "*", name) for name in known} if "*" in pattern else set()
        near = get_close_matches(pattern, sorted(known), n=1, cutoff=0)
        raise OptionError(f"`{argument}` names `{pattern}`, and no layer has such a name; did you mean `{near[0]}`?")

    def _means(self, pattern: Pattern, paths: set[str]) -> bool:
        if isinstance(pattern, str):
            return any(fnmatchcase(path, pattern) for path in paths if path)
        return any(isinstance(self._modules.get(path), pattern) for path in paths)


def _paths(name: str) -> list[str]:
    """A parameter's name, and the paths of the modules it is in; for a parametrized one the weight's name too."""
    parts = COMPUTED.sub(lambda found: found["name"] or found["old"], name).split(".")
    return [name, *(".".join(parts[:end]) for end in range(len(parts) + 1))]


def shown(pattern: Pattern) -> str:
    return f"`{pattern if isinstance(pattern, str) else pattern.__name__}`"
