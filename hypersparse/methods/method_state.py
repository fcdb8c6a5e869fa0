"""`Memory`: the state of methods beyond the weights, in typed objects."""

from copy import deepcopy
from dataclasses import is_dataclass
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class Memory:
    """At most one object of each kind, saved with every checkpoint.

    A kind is a dataclass whose fields hold tensors, numbers, strings, None, and lists and dicts of these. It is
    rebuilt from them when a checkpoint is loaded.
    """

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}  # by kind; what was loaded is a dict of fields until it is asked for

    def get(self, kind: type[T]) -> T | None:
        """The object of a kind, if there is one."""
        name = _name(kind)
        if isinstance(held := self._held.get(name), dict):
            held = self._held[name] = kind(**held)
        found: T | None = held
        return found

    def set(self, value: Any) -> None:
        """Store an object; it replaces one of the same kind."""
        self._held[_name(type(value))] = value

    def pop(self, kind: type[T]) -> T | None:
        """Remove the object of a kind, and return it."""
        found = self.get(kind)
        self._held.pop(_name(kind), None)
        return found

    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        return _tensors(self._held)

    def state_dict(self) -> dict[str, Any]:
        """A copy of all objects as a tree."""
        tree: dict[str, Any] = _tree(self._held)
        return tree

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the objects of `state_dict`."""
        self._held = deepcopy(saved)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _children(value: Any) -> dict[Any, Any] | None:
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, list):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else None


def _tree(value: Any) -> Any:
    children = _children(value)
    if children is None:
        return deepcopy(value)
    parts = {name: _tree(child) for name, child in children.items()}
    return list(parts.values()) if isinstance(value, list) else parts


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for child in (_children(value) or {}).values() for tensor in _tensors(child)]
