"""Options of recipes and runs that several commands share."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hypersparse.cli.option_groups import option
from hypersparse.cli.trust import TrustCode, allowed
from hypersparse.errors import OptionError, unknown
from hypersparse.own_code import named_in
from hypersparse.recipe import NAMED_RECIPES, DataOptions, Recipe, merge, named_recipe, nested, read_toml, resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.weights_io import digest

RECIPE = "What is trained"
LARGEST_SEED = 2**63 - 1  # that torch takes
MOST_SEEDS = 10_000  # in one range; more is taken for a typing error

RunsDir = Annotated[Path, typer.Option("--runs-dir", file_okay=False, help="Folder of the runs.")]
Seeds = Annotated[str, typer.Option("--seed", help="Random seed; several as 0-4 or 0,2.")]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", help="Epochs of the main training (ART: fine-tuning).", rich_help_panel=RECIPE),
]


@dataclass(frozen=True, kw_only=True)
class ModelAndData:
    """The parts of a recipe that most commands name."""

    data: str | None = option(
        None,
        "digits, cifar10, cifar100, tinyimagenet, synthetic, a folder of images or an .npz file. "
        "Its preset is the default of all other options.",
        panel=RECIPE,
    )
    model: str | None = option(None, "resnet32, vgg19, ... or your own as package.file:factory.", panel=RECIPE)
    settings: list[str] | None = option(
        None,
        "Any option of a recipe, such as method.growth=1.1, training.lr=0.05, model.width=16. Repeatable.",
        "--set",
        metavar="TABLE.NAME=VALUE",
        panel=RECIPE,
    )


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(ModelAndData):
    """The recipe of `train` and `plan`, apart from method and sparsity."""

    epochs: Epochs = None
    validation: int | None = option(
        None, "Hold out this many training samples and select the best epoch on them.", panel=RECIPE
    )
    until: str | None = option(
        None, "End after this phase (`regularize`); the same command without it continues.", panel=RECIPE
    )
    ablation: str | None = option(
        None,
        "Remove a property of the found mask before the last phase: shuffle, redraw, positions, or rewind (to "
        "--set ablation.rewind_epoch=N).",
        panel=RECIPE,
    )
    init_from: Path | None = option(
        None,
        "Start from these trained weights (a run, .safetensors or state_dict) and skip pre-training.",
        panel=RECIPE,
    )
    recipe: Path | None = option(
        None,
        "A recipe as TOML, or `best` or `short` where the data set's preset has one; the options here override it.",
        panel=RECIPE,
        dir_okay=False,
    )
    trust_code: TrustCode = False

    def make(self, runs_dir: Path, *, method: str | None = None, sparsity: float | None = None) -> Recipe:
        """The recipe: the data set's preset, overridden by the recipe file, the options and `--set`, in this order.

        User code may be imported that the options and `--set` name, and with `trust_code` what the recipe file names.
        """
        said: dict[str, Any] = {}
        for path, value in (
            ("data.name", self.data),
            ("data.validation", self.validation),
            ("model.name", self.model),
            ("method.name", method),
            ("method.sparsity", sparsity),
            ("training.epochs", self.epochs),
            ("until", self.until),
            ("ablation.name", self.ablation),
        ):
            if value is not None:
                said = merge(said, nested(path, value))
        said = merge(said, parse_settings(self.settings))
        if self.init_from is not None:
            said = merge(said, _start(self.init_from, runs_dir))
        said = merge(said, _teacher(said, runs_dir))
        base = self._base(said)
        base.pop("seed", None)  # of a run's recipe.toml; the command has an option for seeds
        if base.get("init_from") and not base.get("init_digest"):  # written by hand
            base |= _start(Path(base["init_from"]), runs_dir)
        own_code = allowed(named_in(base), typed=named_in(said), trust=self.trust_code)
        return resolve(merge(base, said), own_code=own_code)

    def _base(self, said: dict[str, Any]) -> dict[str, Any]:
        """The tables of `--recipe`: one of the preset's names, or a file."""
        if self.recipe is None:
            return {}
        if str(self.recipe) in NAMED_RECIPES:
            return named_recipe(str(said.get("data", {}).get("name", DataOptions().name)), str(self.recipe))
        if not self.recipe.suffix and not self.recipe.exists():
            raise OptionError(unknown("recipe", str(self.recipe), NAMED_RECIPES) + " A file is named like recipe.toml.")
        return read_toml(self.recipe, "recipe")


def parse_settings(texts: Sequence[str] | None) -> dict[str, Any]:
    """The tables of several `--set`; later ones override."""
    said: dict[str, Any] = {}
    for text in texts or ():
        said = merge(said, parse_setting(text))
    return said


def parse_setting(text: str) -> dict[str, Any]:
    """The table of `TABLE.NAME=VALUE`; a value that is not TOML is a string.

    >>> parse_setting("method.growth=1.1"), parse_setting("data.drop_last=false")
    ({'method': {'growth': 1.1}}, {'data': {'drop_last': False}})
    """
    path, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\w+(\.\w+)+", path.strip()):
        raise OptionError(f"`--set` expects TABLE.NAME=VALUE such as method.growth=1.1; got `{text}`.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return nested(path.strip(), parsed)


def parse_seeds(text: str) -> list[int]:
    """Seeds from `3`, `0,2` or `0-4`.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise OptionError(f"`--seed` is a number, a list such as 0,2 or a range such as 0-4; got `{text}`.")
        if last > LARGEST_SEED or last - first >= MOST_SEEDS:
            raise OptionError(f"`--seed` takes seeds up to 2^63 - 1, and {MOST_SEEDS} at once; got `{text}`.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def parse_sparsities(text: str) -> list[float]:
    """Sparsities from `0.98` or `0.9,0.98`.

    >>> parse_sparsities("0.9,0.98")
    [0.9, 0.98]
    """
    try:
        return list(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise OptionError(f"`--sparsity` is a number or a list such as 0.9,0.98; got `{text}`.") from None


def parse_seconds(text: str) -> float:
    """Seconds from `90`, `90s`, `9m` or `1.5h`.

    >>> parse_seconds("9m"), parse_seconds("90")
    (540.0, 90.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found:
        raise OptionError(f"A time is a number of s, m or h, such as 9m; got `{text}`.")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _start(given: Path, runs_dir: Path) -> dict[str, Any]:
    path = RunStore(runs_dir).weights(given)
    return {"init_from": str(path), "init_digest": digest(path)}


def _teacher(said: dict[str, Any], runs_dir: Path) -> dict[str, Any]:
    """The file and the digest of `--set techniques.teacher=RUN`."""
    techniques = said.get("techniques", {})
    if not techniques.get("teacher") or techniques.get("teacher_digest"):
        return {}
    path = RunStore(runs_dir).weights(Path(str(techniques["teacher"])))
    return {"techniques": {"teacher": str(path), "teacher_digest": digest(path)}}
