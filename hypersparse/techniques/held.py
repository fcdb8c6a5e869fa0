"""What techniques hold beyond the weights: lists of tensors in the memory, on the weights' device."""

from dataclasses import fields
from typing import Any, TypeVar

from torch import Tensor

from hypersparse.methods.base import TrainingState

T = TypeVar("T")


def held(state: TrainingState, kind: type[T]) -> T:
    """The object of a kind, its tensors on the weights' device; those of a checkpoint are on the CPU."""
    found = state.memory.get(kind)
    assert found is not None, f"{kind.__name__} begins with its phase"
    device = state.weights.device

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device)  # the same tensor where it is there already
        return [moved(part) for part in value]

    there = kind(**{field.name: moved(getattr(found, field.name)) for field in fields(found)})  # type: ignore[arg-type]
    state.memory.set(there)
    return there
