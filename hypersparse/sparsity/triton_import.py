"""`import_if_triton`: kernels are imported when they are first asked for, and only where Triton is installed."""

from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

Kernels = TypeVar("Kernels")


def import_if_triton(load: Callable[[], Kernels]) -> Callable[[], Kernels | None]:
    """What `load` imports, once; None where that cannot be imported.

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
