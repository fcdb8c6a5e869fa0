"""Runs in TensorBoard: a folder of event files each, with every scalar over all epochs and over its phase."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypersparse.extras import needed
from hypersparse.integrations.tracker import OpenTracker
from hypersparse.storage.files import writing
from hypersparse.training.concurrency.concurrent_runs import Job


class TensorBoardTracker:
    """A run's event files, rewritten from its log when training resumes, so that no point appears twice."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.epochs = 0
        tensorboard = needed("torch.utils.tensorboard", "tensorboard", "`--track tensorboard`")
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # A TensorBoard that is open already forgets the points it had: they come again.
            self._writer = tensorboard.SummaryWriter(str(folder), purge_step=0)
        recipe = "\n".join(f"    {line}" for line in job.recipe.to_toml().splitlines())  # indented: code
        self._writer.add_text("recipe", f"    seed = {job.seed}\n{recipe}")

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Add an epoch twice: over all epochs, and over those of its phase, which compares runs."""
        for name, value in values.items():
            self._writer.add_scalar(f"run/{name}", value, entry["epoch"])
            self._writer.add_scalar(f"{entry['phase']}/{name}", value, entry["phase_epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def in_folder(root: Path) -> OpenTracker:
    """Trackers in `root/<label>/seed-<n>`; checks at once that the extra is installed."""
    needed("torch.utils.tensorboard", "tensorboard", "`--track tensorboard`")
    return lambda job: TensorBoardTracker(job, root / job.folder.parent.name / job.folder.name)
