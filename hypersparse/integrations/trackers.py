"""`trackers`: TensorBoard, Weights & Biases and MLflow by their names, open while runs are trained."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hypersparse.errors import OptionError, unknown
from hypersparse.integrations import mlflow, tensorboard, wandb
from hypersparse.integrations.tracker import OpenTracker, Trackers
from hypersparse.training.callbacks import Callback, CallbackList
from hypersparse.training.concurrency.concurrent_runs import Job

TRACKERS: Mapping[str, Callable[[str, Path], OpenTracker]] = {
    "tensorboard": lambda place, runs_dir: tensorboard.in_folder(Path(place) if place else runs_dir / "tensorboard"),
    "wandb": wandb.in_project,
    "mlflow": lambda place, runs_dir: mlflow.at(place),
}
Tell = Callable[[Job, Callback], Callback]  # adds the trackers to a callback of a job
NEED_A_PLACE = {"wandb": "wandb:PROJECT", "mlflow": "mlflow:URI"}


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
