"""`PhaseCache`: the ends of phases that several runs share, trained once and stored on disk.

Runs at several sparsities or with other penalties share the dense pre-training. Other schedules of fine-tuning, and
ablations of the mask, share the regularized phase too.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypersparse import data, methods, models
from hypersparse.errors import RunError
from hypersparse.methods.base import Phase
from hypersparse.recipe import Recipe
from hypersparse.storage.checkpoint import load_tree, save_tree
from hypersparse.storage.files import make_folder, remove_leftovers
from hypersparse.storage.history import Epoch
from hypersparse.storage.record import levels_of
from hypersparse.storage.schemas import Entry, PhaseEnd, checked

ONLY_LATER = ("epochs", "schedule", "milestones", "gamma")  # training options without influence on a held learning rate
# Of a machine and its versions, what decides the bits of a phase.
SAME = ("device", "precision", "engine", "deterministic", "threads", "torch", "hypersparse", "code")
log = logging.getLogger("hypersparse")
Recorded = Callable[[int], list[Epoch] | None]
"""The first so many epochs of a run's history; None unless all of them were recorded."""


class PhaseCache:
    """Ends of phases in a folder: a checkpoint each, and the history of its epochs if the run is recorded.

    They are bit-identical to what the run would compute. `machine` describes the process that trains the run.
    """

    def __init__(
        self, root: Path, recipe: Recipe, seed: int, machine: Mapping[str, Any], *, record: bool = True
    ) -> None:
        self.root = root
        tables = recipe.to_mapping()
        # Own code may have changed under the same name, so it is never shared.
        ours = {"model": models.names(), "data": data.names(), "method": methods.names()}
        self._ours = all(tables[table]["name"] in names for table, names in ours.items())
        found = dict(machine)
        if found["device"] != "cpu":
            found["threads"] = None  # without influence on a GPU
        self._decides = {
            **{name: tables[name] for name in ("data", "model", "training", "init_digest")},
            "seed": seed,
            "machine": {name: found[name] for name in SAME},
            # A run's record needs masks at its own sparsity, so only recorded epochs can be shared.
            "record": levels_of(recipe.method) if record else None,
        }

    def save(self, phases: list[Phase], state: dict[str, Any], entries: list[Entry], recorded: Recorded | None) -> None:
        """Store the end of the last of these phases, if all of them are shared."""
        path = self._path(phases)
        history = recorded(len(entries)) if path and recorded else []
        if path and history is not None:
            make_folder(self.root)
            remove_leftovers(self.root, alone=False)
            save_tree(path, {**state, "entries": entries, "history": history})

    def load(self, plan: list[Phase]) -> PhaseEnd | None:
        """The state after the latest stored phase of a plan, or None."""
        for path in reversed(self.paths(plan)):
            if path and path.exists():
                try:
                    return checked(load_tree(path), PhaseEnd, path)
                except RunError as error:
                    log.warning("A stored phase is not used: %s", error)
        return None

    def missing(self, plan: list[Phase]) -> list[Path]:
        """The files of the phases after the latest stored one, in order."""
        paths = [path for path in self.paths(plan) if path]
        kept = max((place for place, path in enumerate(paths, 1) if path.exists()), default=0)
        return paths[kept:]

    def paths(self, plan: list[Phase]) -> list[Path | None]:
        """The file of each phase, stored or not; None from the first phase on that is not shared."""
        return [self._path(plan[:end]) for end in range(1, len(plan) + 1)]

    def _path(self, phases: list[Phase]) -> Path | None:
        if not (self._ours and phases) or any(phase.cache_key is None for phase in phases):
            return None
        decides = {**self._decides, "phases": [[phase.name, phase.cache_key] for phase in phases]}
        if all(phase.lr.held for phase in phases):
            training = self._decides["training"].items()
            decides["training"] = {name: value for name, value in training if name not in ONLY_LATER}
        key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
        return self.root / f"{phases[-1].name}-{key}.safetensors"
