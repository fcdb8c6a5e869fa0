"""The reference of the training benchmark, a reimplementation of the authors' training loop in a checkout."""

import importlib.util
from pathlib import Path
from types import ModuleType

import hypersparse

FILE = Path(hypersparse.__file__).parents[1] / "benchmarks" / "reference_loop.py"
MISSING = (
    "The reference loop (benchmarks/reference_loop.py) is not part of an installed package: "
    "run the bench from a checkout to measure speed-ups over it."
)


def load() -> ModuleType | None:
    """The module of the reference loop, or None outside a checkout; its `measure` times a case."""
    spec = importlib.util.spec_from_file_location("hypersparse_reference_loop", FILE)
    if not FILE.is_file() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
