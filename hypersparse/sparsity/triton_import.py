"""`import_if_triton`: imports kernels at first use, if Triton is installed."""

from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

Kernels = TypeVar("Kernels")


def import_if_triton(load: Callable[[], Kernels]) -> Callable[[], Kernels | None]:
    """Cache what `load` imports; None if it cannot be imported.

    `load` has an import statement of its own, not a module's name: torch.compile can follow the statement.
    """

    @cache
    @wraps(load)
    def loaded() -> Kernels | None:
        try:
            return load()
        except ImportError:
            return None

    return loaded
