"""Tables of the classes that modules define, so that a new class is one entry in one place."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any


def classes_by_name(base: type[Any], modules: Iterable[ModuleType], *, key: str = "name") -> dict[str, type[Any]]:
    """The subclasses that have a name, in the order of the modules and of their definitions."""
    found = (each for module in modules for each in vars(module).values())
    named = (each for each in found if isinstance(each, type) and issubclass(each, base) and hasattr(each, key))
    return {getattr(each, key): each for each in named}
