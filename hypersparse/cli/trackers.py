"""`--track`: epochs of runs in TensorBoard, Weights & Biases or MLflow, during training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from hypersparse.errors import OptionError, unknown
from hypersparse.integrations import mlflow, tensorboard, wandb
from hypersparse.integrations.tracker import OpenTracker, Trackers
from hypersparse.training.callbacks import Callback, CallbackList
from hypersparse.training.concurrency.concurrent_runs import Job

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME[:PLACE]",
        help="tensorboard (event files in RUNS-DIR/tensorboard, or tensorboard:FOLDER), wandb:PROJECT or mlflow:URI. "
        "Repeatable.",
        rich_help_panel="Trackers",
    ),
]
TRACKERS: Mapping[str, Callable[[str, Path], OpenTracker]] = {
    "tensorboard": lambda place, runs_dir: tensorboard.in_folder(Path(place) if place else runs_dir / "tensorboard"),
    "wandb": wandb.in_project,
    "mlflow": lambda place, runs_dir: mlflow.at(place),
}
NEED_A_PLACE = {"wandb": "wandb:PROJECT", "mlflow": "mlflow:URI"}


class Tell(Protocol):
    """Adds the trackers to the callbacks of a job."""

    def __call__(self, job: Job, display: Callback) -> Callback:
        """A callback that tells the display and all trackers."""


@contextmanager
def trackers(named: Sequence[str], runs_dir: Path) -> Iterator[Tell]:
    """Open the named trackers; they are closed at the end of the block, also after an error."""
    opened = [parse_tracker(each, runs_dir) for each in named]
    with ExitStack() as stack:
        groups = [stack.enter_context(Trackers(each)) for each in opened]
        yield lambda job, display: CallbackList([display, *(group.callback(job) for group in groups)])


def parse_tracker(text: str, runs_dir: Path) -> OpenTracker:
    """The function that opens the tracker of a run, from `NAME` or `NAME:PLACE`."""
    name, _, place = text.partition(":")
    if name not in TRACKERS:
        raise OptionError(unknown("tracker", name, TRACKERS))
    if name in NEED_A_PLACE and not place:
        raise OptionError(f"`--track {name}` needs a place: `--track {NEED_A_PLACE[name]}`.")
    return TRACKERS[name](place, runs_dir)
