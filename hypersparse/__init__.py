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
from hypersparse.methods.acdc import ACDC
from hypersparse.methods.art import ART
from hypersparse.methods.base import Method, Phase, TrainingState
from hypersparse.methods.dense import Dense
from hypersparse.methods.gmp import GMP
from hypersparse.methods.grasp import GraSP
from hypersparse.methods.imp import IMP
from hypersparse.methods.iter_snip import IterSNIP
from hypersparse.methods.lth import LTH
from hypersparse.methods.magnitude import Magnitude
from hypersparse.methods.powerprop import PowerProp
from hypersparse.methods.random import Random
from hypersparse.methods.rigl import RigL
from hypersparse.methods.set import SET
from hypersparse.methods.snip import SNIP
from hypersparse.methods.sratio import SRatio
from hypersparse.methods.synflow import SynFlow
from hypersparse.methods.task import Task
from hypersparse.methods.topkast import TopKAST
from hypersparse.sparsifier import Sparsifier, attach
from hypersparse.sparsity import budgets, penalties, schedules, scores
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights

__version__ = "0.1.0"

__all__ = [
    "ACDC",
    "ART",
    "GMP",
    "IMP",
    "LTH",
    "SET",
    "SNIP",
    "Ablation",
    "CollapseError",
    "CollapseWarning",
    "DataError",
    "Dense",
    "DivergedError",
    "GraSP",
    "HypersparseError",
    "IterSNIP",
    "LoopError",
    "Magnitude",
    "Mask",
    "Method",
    "ModelError",
    "OptionError",
    "Phase",
    "PowerProp",
    "PrunableWeights",
    "Random",
    "RigL",
    "RunError",
    "SRatio",
    "Sparsifier",
    "SynFlow",
    "Task",
    "TopKAST",
    "TrainingState",
    "attach",
    "budgets",
    "penalties",
    "schedules",
    "scores",
]
