"""Train neural networks that are 90 to 99.8 % zeros.

In your own loop: `attach`, then `epochs()`. From the shell: `hypersparse train`.
Afterwards: `save_sparse`, `load_sparse`, `save_onnx` and `shrink`. Trained already: `zoo.load`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from hypersparse.methods.base import (
    EverySteps,
    Method,
    Phase,
    PhaseLR,
    PruningMethod,
    Requirements,
    StepRules,
    TrainingState,
)
from hypersparse.methods.dense import Dense
from hypersparse.methods.fixed_mask import Fixed
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
from hypersparse.methods.st3 import ST3
from hypersparse.methods.synflow import SynFlow
from hypersparse.methods.task import Task
from hypersparse.methods.topkast import TopKAST
from hypersparse.sparsifier import Sparsifier, attach
from hypersparse.sparsity import distributions, penalties, schedules, scores
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.techniques.options import Techniques

if TYPE_CHECKING:
    from hypersparse import zoo
    from hypersparse.export.onnx import save_onnx
    from hypersparse.export.shrink import shrink
    from hypersparse.export.sparse_file import load_sparse, save_sparse
    from hypersparse.recipe import Recipe
    from hypersparse.storage.weights_io import load_weights_
    from hypersparse.training.loop import train
    from hypersparse.training.machine import Machine

__version__ = "0.2.0"

__all__ = [
    "ACDC",
    "ART",
    "GMP",
    "IMP",
    "LTH",
    "SET",
    "SNIP",
    "ST3",
    "Ablation",
    "CollapseError",
    "CollapseWarning",
    "DataError",
    "Dense",
    "DivergedError",
    "EverySteps",
    "Fixed",
    "GraSP",
    "HypersparseError",
    "IterSNIP",
    "LoopError",
    "Machine",
    "Magnitude",
    "Mask",
    "Method",
    "ModelError",
    "OptionError",
    "Phase",
    "PhaseLR",
    "PowerProp",
    "PrunableWeights",
    "PruningMethod",
    "Random",
    "Recipe",
    "Requirements",
    "RigL",
    "RunError",
    "SRatio",
    "Sparsifier",
    "StepRules",
    "SynFlow",
    "Task",
    "Techniques",
    "TopKAST",
    "TrainingState",
    "attach",
    "distributions",
    "load_sparse",
    "load_weights_",
    "penalties",
    "save_onnx",
    "save_sparse",
    "schedules",
    "scores",
    "shrink",
    "train",
    "zoo",
]

_LATER = {  # imported when they are first asked for: a loop of one's own needs none of it
    "Machine": "hypersparse.training.machine",
    "Recipe": "hypersparse.recipe",
    "load_sparse": "hypersparse.export.sparse_file",
    "load_weights_": "hypersparse.storage.weights_io",
    "save_onnx": "hypersparse.export.onnx",
    "save_sparse": "hypersparse.export.sparse_file",
    "shrink": "hypersparse.export.shrink",
    "train": "hypersparse.training.loop",
    "zoo": "hypersparse.zoo",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module `hypersparse` has no attribute `{name}`")
    module = import_module(_LATER[name])
    return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
