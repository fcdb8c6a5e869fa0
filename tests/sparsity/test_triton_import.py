"""Kernels are imported once, and only where that is possible."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from hypersparse.sparsity.triton_import import import_if_triton


def test_what_is_there_is_imported_once() -> None:
    times = []

    @import_if_triton
    def load() -> ModuleType:
        """The kernels."""
        import json

        times.append(1)
        return json

    assert times == []  # not before it is asked for
    assert load() is load() is not None
    assert times == [1]
    assert (load.__name__, load.__doc__) == ("load", "The kernels.")


def test_what_is_not_installed_is_none_and_other_errors_are_raised() -> None:
    @import_if_triton
    def missing() -> ModuleType:
        import no_such_package  # type: ignore[import-not-found]

        return no_such_package  # type: ignore[no-any-return]

    @import_if_triton
    def broken() -> ModuleType:
        raise ValueError("another thing")

    assert missing() is None
    with pytest.raises(ValueError, match="another thing"):
        broken()


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_a_compiler_can_follow_it() -> None:
    @import_if_triton
    def load() -> ModuleType:
        import json

        return json

    def plus_one(values: Tensor) -> Tensor:
        return values + 1 if load() else values

    compiled = torch.compile(plus_one, fullgraph=True, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
