"""Train neural networks that are 90 to 99.8 % zeros.

In your own loop: `attach`, then `epochs()`, `penalty()` and `step()`. From the shell: `hypersparse train`.
"""

from hypersparse.errors import (
    CollapseError,
    CollapseWarning,
    DataError,
    DivergedError,
    HypersparseError,
    LoopError,
    ModelError,
    OptionError,
    RunError,
)
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.art import ART
from hypersparse.methods.base import Method, Phase, TrainingState
from hypersparse.methods.dense import Dense
from hypersparse.methods.task import Task
from hypersparse.sparsifier import Sparsifier, attach
from hypersparse.sparsity import budgets, penalties, schedules, scores
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights

__version__ = "0.1.0"

__all__ = [
    "ART",
    "Ablation",
    "CollapseError",
    "CollapseWarning",
    "DataError",
    "Dense",
    "DivergedError",
    "HypersparseError",
    "LoopError",
    "Mask",
    "Method",
    "ModelError",
    "OptionError",
    "Phase",
    "PrunableWeights",
    "RunError",
    "Sparsifier",
    "Task",
    "TrainingState",
    "attach",
    "budgets",
    "penalties",
    "schedules",
    "scores",
]
