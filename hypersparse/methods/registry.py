"""Methods by name: the files of this folder, or anybody's `package.file:Class`."""

import importlib
import inspect
import pkgutil

from hypersparse import methods
from hypersparse.errors import OptionError, unknown
from hypersparse.methods.base import Method


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


def find(name: str) -> type[Method]:
    """The class of a method, by its name or as `package.file:Class`."""
    path, _, attribute = str(name).partition(":")  # a recipe may have a number there
    if not (path and attribute):
        if name not in names():
            raise OptionError(unknown("method", str(name), names()))
        return next(kind for kind in _methods_in(f"{methods.__name__}.{name}") if kind.name == name)
    try:
        kind = getattr(importlib.import_module(path), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"The method `{name}` could not be imported: {error}.") from None
    if not (inspect.isclass(kind) and issubclass(kind, Method) and not inspect.isabstract(kind)):
        raise OptionError(f"`{name}` should be a subclass of hypersparse.Method with a plan; it is {kind!r}.")
    return kind


def _methods_in(module: str) -> list[type[Method]]:
    members = vars(importlib.import_module(module)).values()
    return [
        kind
        for kind in members
        if inspect.isclass(kind) and issubclass(kind, Method) and kind.__module__ == module
        if "name" in vars(kind)
    ]
