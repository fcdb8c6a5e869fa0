"""Runs in Weights & Biases: one W&B run each, found by its name when training resumes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from hypersparse.errors import RunError
from hypersparse.extras import needed
from hypersparse.integrations.tracker import OpenTracker
from hypersparse.storage.files import write_json
from hypersparse.storage.schemas import Count, Word, read_json
from hypersparse.training.concurrency.concurrent_runs import Job

NOTE = ".wandb.json"  # in the run's folder: how many epochs were sent where; without a network nobody else knows


class Note(TypedDict):
    """The epochs that were sent to a project."""

    project: Word
    epochs: Count


class WandbTracker:
    """A run of a project; `WANDB_MODE=offline` keeps it on disk until `wandb sync`."""

    def __init__(self, job: Job, project: str, folder: Path) -> None:
        wandb = needed("wandb", "wandb", "`--track wandb`")
        folder.mkdir(parents=True, exist_ok=True)
        self._note, self._project = job.folder / NOTE, project
        self.epochs = self._sent()
        self._run = wandb.init(
            project=project,
            id=f"{job.recipe.key}-{job.seed}",
            name=f"{job.recipe.label} seed {job.seed}",
            group=job.recipe.label,
            config={**job.recipe.to_mapping(), "seed": job.seed},
            dir=str(folder),
            resume="allow",
            reinit="create_new",  # several runs at once in one process
        )

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        self._run.log({**values, "phase": entry["phase"], "phase_epoch": entry["phase_epoch"]}, step=entry["epoch"])
        write_json(self._note, {"project": self._project, "epochs": entry["epoch"] + 1})

    def close(self) -> None:
        """Send the remaining data."""
        self._run.finish()

    def _sent(self) -> int:
        try:
            note = read_json(self._note, Note)
        except RunError:  # there is none yet, or it is damaged: all epochs are sent again
            return 0
        return note["epochs"] if note["project"] == self._project else 0


def in_project(project: str, folder: Path) -> OpenTracker:
    """Trackers in a project; W&B's own files go to `folder/wandb`."""
    needed("wandb", "wandb", "`--track wandb`")
    return lambda job: WandbTracker(job, project, folder)
