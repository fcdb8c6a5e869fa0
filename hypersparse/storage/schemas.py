"""Schemas of the files of a run.

Every reader validates the content of a file with `checked`. A file that does not fit its schema raises a `RunError`,
which names the file, the problem and what to do.
"""

import json
import math
import reprlib
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar, cast

from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError, with_config
from torch import Tensor
from typing_extensions import TypedDict

from hypersparse.errors import RunError
from hypersparse.regular_file import open_regular

T = TypeVar("T")
MOST_BYTES = 16 << 20  # of a JSON or TOML file; those of the paper's networks have some kilobytes
MOST_LOG_BYTES = 64 << 20  # of a log; a thousand epochs of the paper's networks take one per cent of it
DEEPEST = 32  # nested tables
MOST_DIGITS = 18  # of a whole number
AGAIN = "Copy it again, or delete the folder and train the run again."

CHECKED = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
Word = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]  # printed as it is
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=-1e38, le=1e38)]
Amount = Annotated[float, Field(ge=0, le=1e38)]
Seconds = Annotated[float, Field(ge=0, le=1e10)]


@with_config(CHECKED)
class Entry(TypedDict):
    """One epoch: a line of `log.jsonl` merged with its line of `timing.jsonl`. Methods may add fields."""

    epoch: Count
    phase: Word
    phase_epoch: Count
    stage: Literal["dense", "penalized", "sparse"]
    lr: Number
    loss: Number
    train_accuracy: Share
    test_accuracy: Share
    test_loss: Number | None
    kept: Count
    seconds: Seconds
    shared: NotRequired[bool]  # trained by an earlier run
    total: NotRequired[Count]
    validation_accuracy: NotRequired[Share]
    strength: NotRequired[Amount]
    w_kappa: NotRequired[Amount]
    dense_score: NotRequired[Share]
    pruned_score: NotRequired[Share]
    best_score: NotRequired[Share]
    best_epoch: NotRequired[Count]
    kept_by_layer: NotRequired[list[Count]]
    moved_fraction: NotRequired[Share]
    flops: NotRequired[Amount | None]
    flops_sparse: NotRequired[Amount | None]
    scoring_flops: NotRequired[Amount | None]
    scoring_flops_sparse: NotRequired[Amount | None]


@with_config(CHECKED)
class Timing(TypedDict):
    """Seconds of one epoch: a line of `timing.jsonl`. Equal runs have equal logs, so times are stored separately."""

    epoch: Count
    phase: Word
    seconds: Seconds
    shared: NotRequired[bool]


class Times(TypedDict):
    """Total seconds of a run's epochs."""

    wall_seconds: float
    shared_seconds: float
    wall_seconds_by_phase: dict[str, float]


@with_config(CHECKED)
class Summary(TypedDict):
    """The last and the best of some epochs."""

    phase: Word
    last: Share
    last_epoch: Count
    best: Share
    best_epoch: Count
    best_picked_on: Word


@with_config(CHECKED)
class MachineTable(TypedDict):
    """The machine and the versions that a run was trained with."""

    device: Word
    precision: Word
    engine: Word
    deterministic: bool
    threads: Count | None
    hypersparse: Word
    torch: Word
    python: Word
    platform: Word
    code: Word | None  # None for runs of older versions
    ranks: NotRequired[Annotated[int, Field(ge=2)]]  # processes that shared each batch


@with_config(CHECKED)
class Named(TypedDict):
    """A part of a recipe."""

    name: Word


@with_config(CHECKED)
class MethodTable(TypedDict):
    """The method of a recipe."""

    name: Word
    penalty: NotRequired[Word]
    sparsity: NotRequired[Share]


@with_config(CHECKED)
class Tables(TypedDict):
    """A recipe as tables, for runs whose method cannot be imported."""

    data: Named
    model: Named
    training: dict[str, Any]
    method: MethodTable
    ablation: NotRequired[Named]


@with_config(CHECKED)
class RunTables(Tables):
    """The content of `recipe.toml`: the recipe's tables and the seed."""

    seed: Annotated[int, Field(ge=0)]


@with_config(CHECKED)
class Epochs(TypedDict):
    """The number of epochs of each phase."""

    epochs: dict[Word, Annotated[int, Field(ge=1)]]


@with_config(CHECKED)
class Result(Epochs):
    """The result of a run: `result.json`, with the times of `timing.jsonl`."""

    label: Word
    key: Word
    seed: Count
    until: Word | None
    data: Word
    model: Word
    method: Word
    ablation: Word
    dense: Summary | None
    sparse: Summary | None
    total: Annotated[int, Field(ge=1)]
    kept: Annotated[int, Field(ge=1)]
    sparsity: Share
    kept_by_layer: dict[Word, Count]
    total_by_layer: dict[Word, Count]
    epochs_total: Count
    wall_seconds: Seconds
    shared_seconds: Seconds
    wall_seconds_by_phase: dict[str, Seconds]
    machine: MachineTable
    recipe: Tables
    classes: NotRequired[list[Word]]
    effective_kept: NotRequired[Count | None]
    effective_sparsity: NotRequired[Share | None]
    training_flops: NotRequired[Amount | None]
    training_flops_sparse: NotRequired[Amount | None]
    scoring_flops: NotRequired[Amount | None]
    inference_flops: NotRequired[Amount | None]
    inference_flops_sparse: NotRequired[Amount | None]
    final_bytes: NotRequired[Count]
    dense_bytes: NotRequired[Count]
    at_end: NotRequired[dict[Word, Number | None]]


@with_config(CHECKED)
class Readable(TypedDict):
    """Progress of a run in readable form: `state.json`, also stored in checkpoints."""

    phase: Word
    epochs_finished: Count
    steps_of_this_epoch: Count
    seconds_of_this_epoch: Seconds


@with_config(CHECKED)
class Position(TypedDict):
    """Position in the plan of a run; `Sparsifier.load_state_dict` checks the rest."""

    phase_index: Count
    epoch: Count
    total_epoch: Count
    entered: bool


@with_config(CHECKED)
class Outline(TypedDict):
    """A checkpoint without its tensors."""

    sparsifier: Position


@with_config(CHECKED)
class Checkpoint(TypedDict):
    """Everything a process needs to resume a run."""

    readable: Readable
    model: dict[str, InstanceOf[Tensor]]
    optimizer: dict[str, Any]
    sparsifier: Position
    batches: dict[str, Any]
    scoring_images: dict[str, Any] | None
    record: dict[str, Any]
    scoring: dict[str, Any]
    random: InstanceOf[Tensor]
    random_cuda: InstanceOf[Tensor] | None


@with_config(CHECKED)
class PhaseEnd(Checkpoint):
    """A checkpoint at the end of a phase, with the log and history that other runs need to start from it."""

    entries: list[Entry]
    history: list[dict[str, Any]]


def checked(value: Any, schema: type[T], path: Path, advice: str = AGAIN) -> T:
    """Return the content of a file unchanged, after validating it."""
    try:
        _adapter(cast("Hashable", schema)).validate_python(value)
    except ValidationError as error:
        raise damaged(path, _reason(error), advice) from None
    return cast("T", value)  # not pydantic's copy, whose fields are in another order


def number_of(said: Mapping[str, object], name: str) -> float | None:
    """An optional number of an epoch or a result."""
    value = said.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def damaged(path: Path, reason: object, advice: str = AGAIN) -> RunError:
    """The error for a file that cannot be used."""
    return RunError(f"{path} is damaged: {reason}. {advice}")


def read_json(path: Path, schema: type[T], advice: str = AGAIN) -> T:
    """Read and validate a JSON file."""
    return checked(parse_json(read_bytes(path, advice=advice), path, advice), schema, path, advice)


def read_text(path: Path) -> str:
    """Read a text file of at most 16 MiB."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise damaged(path, "it is not text") from None


def read_bytes(path: Path, limit: int = MOST_BYTES, advice: str = AGAIN) -> bytes:
    """Read a whole file of at most `limit` bytes."""
    try:
        with open_regular(path) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}. {advice}") from None
    if len(content) > limit:
        raise damaged(path, f"it has more than {limit:,} bytes", advice)
    return content


def parse_json(text: bytes, path: Path, advice: str = AGAIN) -> Any:
    """Parse JSON with finite numbers, valid Unicode and limited nesting."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
        if _deeper(value, DEEPEST):
            raise ValueError("it is nested too deeply")
        if b"\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half of a surrogate pair
    except RecursionError:
        raise damaged(path, "it is nested too deeply", advice) from None
    except ValueError as error:
        raise damaged(path, f"it is not JSON that can be used ({error})", advice) from None
    return value


@cache
def _adapter(schema: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", schema))


def _reason(error: ValidationError) -> str:
    """The first problem, in a few words."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"it has no `{name}`"
    expected = first["msg"].removeprefix("Input should be ").removeprefix("String should ")
    where = f"`{name}`" if name else "it"
    return f"{where} should be {expected}; got {reprlib.repr(first['input'])}"


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        _refuse(text[:MOST_DIGITS])
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        _refuse(f"{text[:MOST_DIGITS]}...")
    return int(text)


def _deeper(value: Any, depth: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(depth == 0 or _deeper(each, depth - 1) for each in inside)
