"""Methods by name: the files of this folder, or a user's `package.file:Class`."""

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from hypersparse import methods
from hypersparse import own_code as own
from hypersparse.errors import OptionError, unknown
from hypersparse.methods.base import Method, Phase
from hypersparse.options import option, options


def names() -> list[str]:
    """The methods that come with the package.

    >>> [name for name in names() if "snip" in name]
    ['iter_snip', 'snip']
    """
    found = []
    for module in pkgutil.iter_modules(methods.__path__):
        if any(kind.name == module.name for kind in _methods_in(f"{methods.__name__}.{module.name}")):
            found.append(module.name)
    return sorted(found)


def find(name: str, *, own_code: Collection[str] = ()) -> type[Method]:
    """The class of a method, by its name or as `package.file:Class`, which is imported only if `own_code` has it."""
    name = str(name)  # a recipe may have a number there
    if own.is_own(name):
        kind = own.load(name, kind="method", own_code=own_code)
        if not (inspect.isclass(kind) and issubclass(kind, Method) and not inspect.isabstract(kind)):
            raise OptionError(f"`{name}` should be a subclass of hypersparse.Method with a plan; it is {kind!r}.")
        return kind
    if name not in names():
        raise OptionError(unknown("method", name, names()))
    return next(kind for kind in _methods_in(f"{methods.__name__}.{name}") if kind.name == name)


@options
class Unimported(Method):
    """A user's method named in a file: its options are available, and its code is not run."""

    citation: ClassVar[str] = ""
    name: str = option(default="", help="As the file has it.")  # type: ignore[misc]  # elsewhere the class's
    options: dict[str, Any] = option(default={}, help="As the file has them.")

    def plan(self, epochs: int) -> Sequence[Phase]:
        """Raise an error: the method is not imported."""
        own.check(self.name, kind="method", own_code=())
        return []

    def label(self) -> str:
        """The class."""
        return self.name.rpartition(":")[2]

    @property
    def sparsity(self) -> float | None:
        """The option of that name, if it is one."""
        value = self.options.get("sparsity")
        return float(value) if isinstance(value, int | float) and 0 <= value < 1 else None

    @property
    def penalty(self) -> str | None:
        """The option of that name, if it is one."""
        value = self.options.get("penalty")
        return value if isinstance(value, str) else None


def describe(kind: type[Method], epochs: int) -> dict[str, Any]:
    """A method with its default options, as plain values."""
    plan = kind().plan(epochs)
    return {
        "name": kind.name,
        "about": first_sentence(kind),
        "epochs_least": sum(min(1, phase.epochs) if phase.stop_when else phase.epochs for phase in plan),
        "epochs_most": sum(phase.epochs for phase in plan),
        "phases": {phase.name: phase.epochs for phase in plan},
        "citation": kind.citation,
    }


def first_sentence(kind: type) -> str:
    """The first sentence of a docstring, on one line.

    >>> first_sentence(find("dense"))
    'Train all weights; prune nothing.'
    """
    words = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    end = words.find(". ")
    return words if end < 0 else words[: end + 1]


def _methods_in(module: str) -> list[type[Method]]:
    members = vars(importlib.import_module(module)).values()
    return [
        kind
        for kind in members
        if inspect.isclass(kind) and issubclass(kind, Method) and kind.__module__ == module
        if "name" in vars(kind)
    ]
