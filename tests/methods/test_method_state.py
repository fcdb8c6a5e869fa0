"""What methods remember comes back from a checkpoint as what it was."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hypersparse.methods.method_state import Memory


@dataclass
class Inner:
    value: Tensor


@dataclass
class Outer:
    inner: Inner | None = None
    numbers: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        if isinstance(self.inner, dict):
            self.inner = Inner(**self.inner)  # type: ignore[unreachable]


def test_objects_are_made_anew_from_what_was_saved() -> None:
    first, second = Memory(), Memory()
    first.set(Outer(Inner(torch.ones(2)), [1.0]))
    second.load_state_dict(first.state_dict())
    found = second.get(Outer)
    assert isinstance(found, Outer)
    assert isinstance(found.inner, Inner)
    assert found.inner.value.tolist() == [1.0, 1.0]
    assert found.numbers == [1.0]
    assert second.get(Outer) is found


def test_what_was_saved_and_what_was_loaded_do_not_change_with_it() -> None:
    first, second = Memory(), Memory()
    value = torch.ones(2)
    first.set(Inner(value))
    saved = first.state_dict()
    second.load_state_dict(saved)
    value.zero_()
    loaded = second.get(Inner)
    assert loaded is not None
    loaded.value.fill_(5.0)
    (tensor,) = (held["value"] for held in saved.values())
    assert tensor.tolist() == [1.0, 1.0]


def test_there_is_one_object_of_a_kind() -> None:
    memory = Memory()
    assert memory.get(Outer) is None
    assert memory.pop(Outer) is None
    memory.set(Outer(numbers=[1.0]))
    memory.set(Outer(numbers=[2.0]))
    memory.set(Inner(torch.zeros(1)))
    popped = memory.pop(Outer)
    assert popped is not None
    assert popped.numbers == [2.0]
    assert memory.get(Outer) is None
    assert memory.get(Inner) is not None


def test_all_tensors_are_found_before_and_after_a_restart() -> None:
    first, second = Memory(), Memory()
    first.set(Outer(Inner(torch.tensor(1.0))))
    first.set(Inner(torch.tensor(2.0)))
    second.load_state_dict(first.state_dict())
    assert [float(tensor) for tensor in first.tensors()] == [1.0, 2.0]
    assert [float(tensor) for tensor in second.tensors()] == [1.0, 2.0]
