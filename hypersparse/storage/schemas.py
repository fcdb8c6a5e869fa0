"""What the files of runs hold, field by field, and the one way in which reading them fails.

Whoever reads a file of a run calls `checked` on its content. A file that does not fit is a `RunError`, which says
which file it is, what is wrong with it, and what to do.
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
MOST_LOG_BYTES = 64 << 20  # of a log: a thousand epochs of the paper's networks take one percent of that
DEEPEST = 32  # tables in tables
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
    """An epoch: a line of `log.jsonl`, with its line of `timing.jsonl`. A method may note more than this."""

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
    shared: NotRequired[bool]  # an earlier run spent them
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
    """What an epoch took: a line of `timing.jsonl`, apart from the log, which is the same every time."""

    epoch: Count
    phase: Word
    seconds: Seconds
    shared: NotRequired[bool]


class Times(TypedDict):
    """What the epochs of a run took together."""

    wall_seconds: float
    shared_seconds: float
    wall_seconds_by_phase: dict[str, float]


@with_config(CHECKED)
class Summary(TypedDict):
    """The last and the best epoch of a stretch of training."""

    phase: Word
    last: Share
    last_epoch: Count
    best: Share
    best_epoch: Count
    best_picked_on: Word


@with_config(CHECKED)
class MachineTable(TypedDict):
    """The machine and the versions a run was made with."""

    device: Word
    precision: Word
    engine: Word
    deterministic: bool
    threads: Count | None
    hypersparse: Word
    torch: Word
    python: Word
    platform: Word
    code: Word | None  # unknown for runs of older versions
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
    """A recipe as tables: what is listed of a run whose method cannot be imported here."""

    data: Named
    model: Named
    training: dict[str, Any]
    method: MethodTable
    ablation: NotRequired[Named]


@with_config(CHECKED)
class RunTables(Tables):
    """What `recipe.toml` holds: the recipe's tables and the seed."""

    seed: Annotated[int, Field(ge=0)]


@with_config(CHECKED)
class Epochs(TypedDict):
    """How many epochs a result counts, of each phase."""

    epochs: dict[Word, Annotated[int, Field(ge=1)]]


@with_config(CHECKED)
class Result(Epochs):
    """What came out of a run: `result.json`, with the times of `timing.jsonl`."""

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
    """Where a run stands, in words: `state.json`, and the same in a checkpoint."""

    phase: Word
    epochs_finished: Count
    steps_of_this_epoch: Count
    seconds_of_this_epoch: Seconds


@with_config(CHECKED)
class Position(TypedDict):
    """Where the plan of a run stands; `Sparsifier.load_state_dict` checks the rest."""

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
    """Everything a later process needs to go on."""

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
    """A checkpoint at the end of a phase, with all that a run needs that did not train it."""

    entries: list[Entry]
    history: list[dict[str, Any]]


def checked(value: Any, schema: type[T], path: Path, advice: str = AGAIN) -> T:
    """The content of a file as it is, if it fits."""
    try:
        _adapter(cast("Hashable", schema)).validate_python(value)
    except ValidationError as error:
        raise damaged(path, _reason(error), advice) from None
    return cast("T", value)  # not the copy, whose fields have another order


def number_of(said: Mapping[str, object], name: str) -> float | None:
    """A number that an epoch or a result may say."""
    value = said.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def damaged(path: Path, reason: object, advice: str = AGAIN) -> RunError:
    """The error of a file that cannot be used."""
    return RunError(f"{path} is damaged: {reason}. {advice}")


def read_json(path: Path, schema: type[T], advice: str = AGAIN) -> T:
    """The content of a JSON file."""
    return checked(parse_json(read_bytes(path, advice=advice), path, advice), schema, path, advice)


def read_text(path: Path, advice: str = AGAIN) -> str:
    """A short text."""
    try:
        return read_bytes(path, advice=advice).decode()
    except UnicodeDecodeError:
        raise damaged(path, "it is not text", advice) from None


def read_bytes(path: Path, limit: int = MOST_BYTES, advice: str = AGAIN) -> bytes:
    """A whole file of at most so many bytes."""
    try:
        with open_regular(path) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}. {advice}") from None
    if len(content) > limit:
        raise damaged(path, f"it has more than {limit:,} bytes", advice)
    return content


def parse_json(text: bytes, path: Path, advice: str = AGAIN) -> Any:
    """What JSON says, with finite numbers, texts that can be printed, and tables that are not too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
        if _deeper(value, DEEPEST):
            raise ValueError("it is nested too deeply")
        if b"\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # refuses half of a surrogate pair
    except RecursionError:
        raise damaged(path, "it is nested too deeply", advice) from None
    except ValueError as error:
        raise damaged(path, f"it is not JSON that can be used ({error})", advice) from None
    return value


@cache
def _adapter(schema: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", schema))


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, in a few words."""
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
