"""`Study`: a resumable search of a recipe's options with Optuna."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypersparse.errors import DivergedError, OptionError, RunError
from hypersparse.extras import needed
from hypersparse.recipe import Recipe, merge, nested
from hypersparse.storage.files import make_folder
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry, Result
from hypersparse.training.callbacks import Callback
from hypersparse.training.stop import Stopped, StopRequest

JOURNAL = "trials.jsonl"  # in the study's folder
STARTUP_TRIALS = 5  # before trials are compared with the median of the earlier ones
HOPELESS = "the trial is below the median"
Train = Callable[[Recipe, Path, str, Callback, StopRequest], Result]
"""Trains a recipe in a folder under a title, tells the callback, and stops on request."""


@dataclass(frozen=True)
class Range:
    """An option of a recipe, and the values to choose from: two bounds, or a list."""

    name: str  # such as method.growth
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Range":
        """From `TABLE.NAME=LOW..HIGH`, `TABLE.NAME=LOW..HIGH:log` or `TABLE.NAME=A,B,C`.

        >>> Range.parse("method.strength=1e-5..1e-3:log").log
        True
        >>> Range.parse("training.schedule=cosine,multistep").choices
        ('cosine', 'multistep')
        """
        name, equals, values = text.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)+", name.strip()) or not values.strip():
            raise OptionError(_EXPECTED.format(text))
        if ".." not in values:
            return cls(name.strip(), choices=tuple(_value(part) for part in values.split(",")))
        bounds, _, scale = values.partition(":")
        low, high = (_value(part) for part in bounds.split("..", 1))
        numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
        if not numbers or low >= high or scale not in ("", "log") or (scale and low <= 0):
            raise OptionError(_EXPECTED.format(text))
        whole = isinstance(low, int) and isinstance(high, int)
        return cls(name.strip(), low=low, high=high, log=bool(scale), whole=whole)

    def suggest(self, trial: Any) -> Any:
        """A value for a trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        ask = trial.suggest_int if self.whole else trial.suggest_float
        return ask(self.name, self.low, self.high, log=self.log)


_EXPECTED = (
    "`--search` expects TABLE.NAME=LOW..HIGH, with `:log` for a logarithmic scale, or TABLE.NAME=A,B,C; got `{}`."
)


def _value(text: str) -> Any:
    """A number, a boolean, or the text itself."""
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True)
class Trial:
    """A finished trial."""

    number: int
    values: dict[str, Any]
    accuracy: float | None  # on held-out images in the last epoch; None where it was pruned
    state: str


class _Reporter(Callback):
    """Reports the accuracy on held-out images to Optuna after every sparse epoch, and stops a hopeless trial."""

    def __init__(self, trial: Any, stop: StopRequest) -> None:
        self._trial, self._stop, self._epochs = trial, stop, 0

    def started(self, sparsifier: Any, entries: Sequence[Entry], steps: int) -> None:
        """Report the epochs of an earlier attempt."""
        for entry in entries:
            self.finished_epoch(entry)

    def finished_epoch(self, entry: Entry) -> None:
        """Report an epoch."""
        if entry["stage"] != "sparse":
            return
        self._trial.report(entry["validation_accuracy"], self._epochs)
        self._epochs += 1
        if self._trial.should_prune():
            self._stop.stop(HOPELESS)


class Study:
    """A search in a folder: a journal of the trials, and a run for each.

    An interrupted trial is proposed first, and its run resumes from its checkpoint.
    """

    def __init__(self, folder: Path, space: Sequence[Range], recipe: Recipe, *, seed: int = 0) -> None:
        self._optuna = optuna = needed("optuna", "tune", "`hypersparse tune`")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if not space:
            raise OptionError("A search needs an option to vary: --search method.growth=1.1..1.4.")
        make_folder(folder)
        self.folder, self.space, self.seed, self._recipe = folder, tuple(space), seed, recipe
        self._study = _opened(optuna, folder / JOURNAL)
        self._check_same()
        # Each start draws other numbers, or it would propose what the last one did.
        self._study.sampler = optuna.samplers.TPESampler(seed=seed + len(self._study.trials))
        self._propose_again()

    def run(self, trials: int, train: Train, stop: StopRequest) -> None:
        """Train until this many trials are finished, including those of earlier starts."""
        while len(self.finished()) < trials:
            trial = self._study.ask()
            values = {each.name: each.suggest(trial) for each in self.space}
            recipe, title = with_values(self._recipe, values), _title(values)
            self._study.tell(trial, **self._outcome(trial, recipe, train, stop, title=title))

    def finished(self) -> list[Trial]:
        """The finished trials in order, counted from 1; Optuna also counts those that were cut off."""
        state = self._optuna.trial.TrialState
        done = self._study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED))
        return [
            Trial(number, dict(each.params), each.value if each.state == state.COMPLETE else None, each.state.name)
            for number, each in enumerate(done, 1)
        ]

    def best(self) -> Trial | None:
        """The trial with the highest accuracy."""
        complete = [trial for trial in self.finished() if trial.accuracy is not None]
        return max(complete, key=lambda trial: trial.accuracy or 0.0, default=None)

    def _outcome(self, trial: Any, recipe: Recipe, train: Train, stop: StopRequest, *, title: str) -> dict[str, Any]:
        pruned = {"state": self._optuna.trial.TrialState.PRUNED}
        own, run = _Linked(stop), RunFolder(self.folder / recipe.label / f"seed-{self.seed}")
        try:
            train(recipe, run.path, title, _Reporter(trial, own), own)
        except Stopped:
            if own.reason != HOPELESS:  # the user's wish; the trial is proposed again
                raise
            run.delete_checkpoints()
            return pruned
        except DivergedError:
            return pruned
        return {"values": run.log()[-1]["validation_accuracy"]}

    def _check_same(self) -> None:
        said = {"recipe": self._recipe.to_toml(), "space": [repr(each) for each in self.space]}
        before = self._study.user_attrs
        if before and {name: before.get(name) for name in said} != said:
            raise RunError(
                f"The search in {self.folder} is of another recipe or other ranges; give the same command, or another "
                "--study."
            )
        for name, value in said.items():
            self._study.set_user_attr(name, value)

    def _propose_again(self) -> None:
        state = self._optuna.trial.TrialState
        for trial in self._study.get_trials(states=[state.RUNNING]):
            self._study.tell(trial.number, state=state.FAIL)
            if len(trial.params) == len(self.space):
                self._study.enqueue_trial(trial.params)


def _opened(optuna: Any, journal: Path) -> Any:
    """The study in a journal, without a line that was cut off; a new study if there is none."""
    if journal.exists():
        with journal.open("rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
    try:
        backend = optuna.storages.journal.JournalFileBackend(str(journal))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="tune",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
        )
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise RunError(f"{journal} is no journal of a search ({error}); delete it, or give another --study.") from None


class _Linked(StopRequest):
    """A request to stop one trial, or all trials if the user asks for it."""

    def __init__(self, outer: StopRequest) -> None:
        super().__init__()
        self._outer = outer

    def requested(self) -> bool:
        if self._outer.requested():
            self.stop(str(self._outer.reason))
        return super().requested()


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some options changed, by names such as `method.growth`."""
    tables = recipe.to_mapping()
    for name, value in values.items():
        table = name.partition(".")[0]
        if table not in tables or not isinstance(tables[table], Mapping):
            raise OptionError(f"`{name}` is no option of a recipe; options are in tables, such as method.growth.")
        tables = merge(tables, nested(name, value))
    return Recipe.from_mapping(tables, own_code=recipe.imported)


def _title(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in values.items()
    )
