"""The options for live views of runs, and the watchers they make."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from hypersparse.integrations import mlflow, tensorboard, wandb
from hypersparse.integrations.tracker import LiveViews
from hypersparse.training.callbacks import Callback, CallbackList
from hypersparse.training.concurrency.concurrent_runs import Job

LIVE = "Live view"
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Event files in RUNS-DIR/tensorboard.", rich_help_panel=LIVE)
]
TensorBoardDir = Annotated[
    Path | None,
    typer.Option("--tensorboard-dir", file_okay=False, help="Event files there instead.", rich_help_panel=LIVE),
]
Wandb = Annotated[
    str | None, typer.Option("--wandb", metavar="PROJECT", help="A Weights & Biases project.", rich_help_panel=LIVE)
]
Mlflow = Annotated[
    str | None, typer.Option("--mlflow", metavar="URI", help="An MLflow tracking server.", rich_help_panel=LIVE)
]


class Tell(Protocol):
    """Adds watchers to a job."""

    def __call__(self, job: Job, display: Callback) -> Callback:
        """Who is told about this job: the display and all live views."""


@contextmanager
def live_views(
    runs_dir: Path, *, to_tensorboard: bool, tensorboard_dir: Path | None, to_wandb: str | None, to_mlflow: str | None
) -> Iterator[Tell]:
    """Open the views that were asked for, and close them at the end, however that comes."""
    shows = []
    if to_tensorboard or tensorboard_dir:
        shows.append(tensorboard.in_folder(tensorboard_dir or runs_dir / "tensorboard"))
    if to_wandb is not None:
        shows.append(wandb.in_project(to_wandb, runs_dir))
    if to_mlflow is not None:
        shows.append(mlflow.at(to_mlflow))
    with ExitStack() as stack:
        views = [stack.enter_context(LiveViews(show)) for show in shows]
        yield lambda job, display: CallbackList([display, *(view.watcher(job) for view in views)])
