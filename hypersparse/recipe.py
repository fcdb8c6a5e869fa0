"""`Recipe`: all settings that determine a result, their TOML form and their key."""

import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn

from hypersparse import methods
from hypersparse import own_code as own
from hypersparse.errors import OptionError, unknown
from hypersparse.methods.ablation import Ablation
from hypersparse.methods.art import ART
from hypersparse.methods.base import Method, Phase
from hypersparse.methods.phase_plan import plan_of
from hypersparse.options import non_default, option, options
from hypersparse.sparsity import schedules
from hypersparse.sparsity.schedules import Schedule
from hypersparse.techniques.options import Techniques
from hypersparse.techniques.plan import with_techniques

KEY_LENGTH = 8
NAMED_RECIPES = ("best", "short")  # the most accurate one at equal epochs; the preset's accuracy in half of them
NOT_IN_KEY = ("until", "init_from", "own_code")  # the end and the places of files do not change what is computed


@options
class DataOptions:
    """The data set and its preprocessing."""

    name: str = option(default="digits", help="A data set's name, a folder of images or an .npz file.")
    validation: int = option(default=0, help="Training samples held out to select the best epoch.", ge=0)
    padding: int = option(default=0, help="Black pixels added around an image before a random crop.", ge=0)
    flip: bool = option(default=False, help="Mirror half of the training images.")
    drop_last: bool = option(default=True, help="Drop the last, partial batch of an epoch.")
    scoring_images: Literal["clean", "augmented"] = option(
        default="clean", help="Training images on which a method scores the network."
    )
    scoring_count: int = option(
        default=0, help="Training images to score on, evenly spaced in their order; 0: all.", ge=0
    )
    options: dict[str, Any] = option(default={}, help="Further options of this data set.")


@options
class ModelOptions:
    """The network."""

    name: str = option(default="resnet8", help="A model's name, or your own as package.file:factory.")
    narrow: float = option(
        default=0.0,
        help="Reduce the width until the parameters are about as many as would be kept at this sparsity.",
        ge=0,
        lt=1,
    )
    options: dict[str, Any] = option(default={}, help="Further options of this model, such as width.")


Fraction = Annotated[float, Field(gt=0, lt=1)]


@options
class TrainingOptions:
    """The training settings of all phases."""

    epochs: int = option(default=160, help="Epochs of the main training (ART: of fine-tuning).", ge=1)
    batch_size: int = option(default=64, help="Images per step.", ge=1)
    optimizer: Literal["sgd", "adamw"] = option(default="sgd", help="The optimizer.")
    lr: float = option(default=0.1, help="Initial learning rate of every phase.", gt=0)
    momentum: float = option(default=0.9, help="Momentum of sgd (for adamw: beta 1).", ge=0, lt=1)
    nesterov: bool = option(default=False, help="Use Nesterov momentum, for sgd.")
    weight_decay: float = option(default=1e-4, help="Weight decay of all parameters, in all phases.", ge=0)
    schedule: Literal["multistep", "cosine", "constant"] = option(
        default="multistep", help="Schedule of the learning rate."
    )
    milestones: tuple[Fraction, ...] = option(
        default=(0.5, 0.75), help="For `multistep`: when the rate drops, as fractions of the phase."
    )
    gamma: float = option(
        default=0.1, help="For `multistep`: factor on the learning rate at each milestone.", gt=0, lt=1
    )

    def __post_init__(self) -> None:
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise OptionError("`nesterov` needs the optimizer sgd with a `momentum` above 0; leave it out otherwise.")

    def lr_schedule(self) -> Schedule:
        """The factor on the learning rate as a function of progress."""
        if self.schedule == "multistep":
            return schedules.multistep(self.milestones, self.gamma)
        return schedules.cosine if self.schedule == "cosine" else schedules.constant


@options
class Recipe:
    """All settings that determine a result, except the seed."""

    data: DataOptions = option(default=DataOptions(), help="The images.")
    model: ModelOptions = option(default=ModelOptions(), help="The network.")
    training: TrainingOptions = option(default=TrainingOptions(), help="The training.")
    method: Method = option(default=ART(), help="The pruning method.")
    ablation: Ablation = option(default=Ablation(), help="What is taken away from what the method found.")
    techniques: Techniques = option(default=Techniques(), help="What is trained with beside the method.")
    until: str | None = option(default=None, help="The last phase to train; a later run without it continues.")
    init_from: str = option(default="", help="File with trained weights to start from.")
    init_digest: str = option(default="", help="SHA-256 of those weights.")
    own_code: frozenset[str] = option(default=frozenset(), help="Names of user code that may be imported.")

    def __post_init__(self) -> None:
        if self.init_from and not self.init_digest:
            raise OptionError(
                f"`init_from` names a file of trained weights ({self.init_from}); `init_digest` must identify it: "
                "pass hypersparse.storage.weights_io.digest(init_from)."
            )
        if not isinstance(self.method, methods.Unimported):
            self.plan()  # raises an error if `until` is unknown

    @property
    def trained(self) -> bool:
        """Whether training starts from trained weights, which skips pre-training."""
        return bool(self.init_digest)

    def plan(self, *, teacher: nn.Module | None = None) -> list[Phase]:
        """The phases of training, with the network of a given `teacher` where it is to be trained."""
        change = partial(with_techniques, techniques=self.techniques, trained=self.trained, teacher=teacher)
        return plan_of(
            self.method,
            epochs=self.training.epochs,
            trained=self.trained,
            until=self.until,
            ablation=self.ablation,
            change=change,
        )

    @property
    def key(self) -> str:
        """A hash of the options that differ from their defaults, which identifies what is computed."""
        changed = {name: value for name, value in self._changed().items() if name not in NOT_IN_KEY}
        changed.get("techniques", {}).pop("teacher", None)  # a place, like that of `init_from`
        text = json.dumps(changed, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    @property
    def label(self) -> str:
        """A readable name with the key, used for the run's folder."""
        words = [Path(self.data.name).stem, self.model.name.split(":")[-1], self.method.label()]
        words += [] if self.ablation.name == "none" else [self.ablation.name]
        words += [f"narrow-{self.model.narrow:g}"] if self.model.narrow else []
        return re.sub(r"[^\w.+-]+", "_", "-".join(words)) + f"-{self.key}"

    @property
    def imported(self) -> frozenset[str]:
        """All names of user code that may be imported; passed to processes that train the recipe."""
        method = _method_name(self.method)
        known = own.is_own(method) and not isinstance(self.method, methods.Unimported)
        return self.own_code | ({method} if known else set())

    def differences(self, other: "Recipe") -> list[str]:
        """The options in which two recipes differ, as `training.lr 0.1 / 0.05`."""
        mine, theirs = flatten(self.to_mapping()), flatten(other.to_mapping())
        names = [name for name in {**mine, **theirs} if name not in NOT_IN_KEY]
        return [f"{name} {mine.get(name)} / {theirs.get(name)}" for name in names if mine.get(name) != theirs.get(name)]

    def to_mapping(self) -> dict[str, Any]:
        """All options as nested tables, as in TOML."""
        return {
            "init_from": self.init_from,
            "init_digest": self.init_digest,
            **({"until": self.until} if self.until else {}),
            "data": _table(self.data),
            "model": _table(self.model),
            "training": _table(self.training),
            "method": {"name": _method_name(self.method), **_table(self.method)},
            "ablation": _table(self.ablation),
            "techniques": _table(self.techniques),
        }

    def to_toml(self) -> str:
        """The recipe as TOML, with all defaults written out."""
        return "\n".join(_toml_lines(self.to_mapping())) + "\n"

    @classmethod
    def from_mapping(
        cls, tables: Mapping[str, Any], *, own_code: Collection[str] = (), stored: bool = False
    ) -> "Recipe":
        """Build a recipe from nested tables; missing options have their defaults.

        User code (`package.file:name`) is imported only if `own_code` contains its name; otherwise it is an error. In a
        `stored` recipe, which may come from someone else, it stays a name: the recipe can be read but not trained.
        """
        values, named = dict(tables), own.named_in(tables)
        known = [field.name for field in dataclasses.fields(cls) if field.name != "own_code"]  # never read from a file
        if unknown_names := values.keys() - set(known):
            raise OptionError(unknown("part of a recipe", min(unknown_names), known))
        for name, kind in (("data", DataOptions), ("model", ModelOptions)):
            values[name] = kind(**_with_further_options(kind, _as_table(name, values.get(name, {}))))
        values["training"] = TrainingOptions(**_as_table("training", values.get("training", {})))
        values["techniques"] = Techniques(**_as_table("techniques", values.get("techniques", {})))
        values["ablation"] = Ablation(**_as_table("ablation", values.get("ablation", {})))
        method = dict(_as_table("method", values.get("method", {})))
        name = method.pop("name", ART.name)
        if stored and name in named - set(own_code):
            values["method"] = methods.Unimported(name=name, options=method)
        else:
            values["method"] = methods.find(name, own_code=own_code)(**method)
        if own.is_own(model := values["model"].name) and not stored:
            own.check(model, kind="model", own_code=own_code)
        return cls(**values, own_code=named & set(own_code))

    @classmethod
    def from_toml(cls, text: str, *, own_code: Collection[str] = (), stored: bool = False) -> "Recipe":
        """A recipe from TOML; the options are those of `from_mapping`."""
        return cls.from_mapping(parse_toml(text, "the recipe"), own_code=own_code, stored=stored)

    def _changed(self) -> dict[str, Any]:
        changed = non_default(self)
        changed["method"] = {"name": _method_name(self.method), **non_default(self.method)}
        return changed


def own_code_of(recipes: Iterable[Recipe]) -> frozenset[str]:
    """All names of own code that may be imported for some of these recipes."""
    return frozenset(name for recipe in recipes for name in recipe.imported)


def preset(data: str) -> dict[str, Any]:
    """The preset of a data set as tables; empty if there is none.

    Its `methods` table holds options by method name.
    """
    tables = _preset_file(data)
    tables.pop("recipes", None)
    return tables


def named_recipe(data: str, name: str) -> dict[str, Any]:
    """A recipe that has beaten the preset of a data set in measured runs, as tables over the preset."""
    recipes = _preset_file(data).get("recipes", {})
    if name not in recipes:
        there = f"it has {', '.join(map(repr, recipes))}" if recipes else "it has none"
        raise OptionError(
            f"There is no recipe `{name}` for {data}, since no measured runs support one; {there}. Leave `--recipe` "
            "out for the preset, or pass a TOML file."
        )
    return merge({"data": {"name": data}}, recipes[name])


def _preset_file(data: str) -> dict[str, Any]:
    file = resources.files("hypersparse") / "presets" / f"{data}.toml"
    known = data.isidentifier() and file.is_file()  # data sets at a path have none
    return parse_toml(file.read_text(), str(file)) if known else {}


def resolve(tables: Mapping[str, Any], *, own_code: Collection[str] = (), stored: bool = False) -> Recipe:
    """Complete the user's tables with the data set's preset. The options are those of `from_mapping`."""
    name = _as_table("data", tables.get("data", {})).get("name", DataOptions().name)
    base = preset(str(name))
    by_method = base.pop("methods", {})
    model = _as_table("model", tables.get("model", {})).get("name")
    if model not in (None, base.get("model", {}).get("name")):
        base.pop("model", None)  # its options belong to another model
    merged = merge(base, tables)
    method = _as_table("method", merged.get("method", {}))
    merged["method"] = {**by_method.get(method.get("name", ART.name), {}), **method}
    return Recipe.from_mapping(merged, own_code=own_code, stored=stored)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested tables; values of the second take precedence.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    merged = dict(base)
    for name, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = merge(merged[name], value)
        else:
            merged[name] = value
    return merged


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; `where` names the source in errors."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise OptionError(f"{where} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:  # also raised for integers of thousands of digits
        raise OptionError(f"{where} is not valid TOML: {error}.") from None


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Parse a TOML file; `what`, such as "recipe", names it in errors."""
    try:
        return parse_toml(path.read_text(), str(path))
    except OSError as error:
        raise OptionError(f"The {what} {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise OptionError(f"The {what} {path} cannot be read: it is not text in UTF-8.") from None


def _table(value: Any) -> dict[str, Any]:
    table = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    further = table.pop("options", {})
    present = {k: v for k, v in table.items() if v is not None}  # TOML has no null
    return {**{k: list(v) if isinstance(v, tuple) else v for k, v in present.items()}, **further}


def _with_further_options(kind: type, table: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(kind)} - {"options"}
    further = {name: value for name, value in table.items() if name not in known}
    return {**{name: value for name, value in table.items() if name in known}, "options": further}


def _as_table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionError(f"`{name}` of a recipe must be a table such as [{name}] name = ...; got {value!r}.")
    return value


def _method_name(method: Method) -> str:
    kind = type(method)
    return method.name if kind.__module__.startswith(methods.__name__) else f"{kind.__module__}:{kind.__qualname__}"


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables; keys become names such as `method.growth`."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def nested(name: str, value: Any) -> dict[str, Any]:
    """The tables that hold one option, by its name.

    >>> nested("method.growth", 1.1)
    {'method': {'growth': 1.1}}
    """
    tables = value
    for part in reversed(name.split(".")):
        tables = {part: tables}
    return dict(tables)


def _toml_lines(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {_toml_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{prefix}{name}]", *_toml_lines(value, f"{prefix}{name}.")]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return json.dumps(value)  # strings, numbers and booleans are written the same way in TOML
