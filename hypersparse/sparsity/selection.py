"""`select_parameters`: the prunable parameters of a model, and the reasons for the others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from hypersparse.errors import ModelError, OptionError
from hypersparse.sparsity.layer_names import LayerNames, Pattern, shown

PrunableModules = Mapping[Pattern, tuple[str, ...]]
PRUNABLE: Mapping[type[nn.Module], tuple[str, ...]] = {
    _ConvNd: ("weight",),
    nn.Linear: ("weight",),
    nn.MultiheadAttention: ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
}
# By name, so that nobody must install these packages.
PRUNABLE_BY_NAME = {"transformers.pytorch_utils.Conv1D": ("weight",)}
PEFT_LAYER, PEFT_WRAPPER = "peft.tuners.tuners_utils.BaseTunerLayer", "peft.utils.other.ModulesToSaveWrapper"
WEIGHT_NORM = "under weight_norm, which divides an empty row by 0; remove it from the layer first"
COMPUTED_BY = "computed by {}; its zeros are not zeros of what is stored"
PRUNED_BY_TORCH = "under torch.nn.utils.prune; call prune.remove first"
ADAPTER = "of an adapter, which is added to a layer's weight"
REPLACED = "replaced by a trained copy in `modules_to_save`"
VECTOR, EMBEDDING, SKIPPED, UNNAMED = "a bias or norm", "an embedding", "named by `skip`", "not named by `only`"
LEFT_DENSE = (VECTOR, EMBEDDING, SKIPPED, UNNAMED, ADAPTER, REPLACED)
NOT_KNOWN = "of a type that is not prunable by default"
EXPECTED_SHARE = 0.8  # of the matrix weights that are prunable, below which most of a network would stay dense


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a model.

    Not `state_dict()`: that has tied weights twice, lacks non-persistent buffers and may hold other things.
    """
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def unwrap(model: nn.Module) -> nn.Module:
    """The module behind `torch.compile` or a data-parallel wrapper, whose parameter names are the user's."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@dataclass(frozen=True)
class WeightRow:
    """A weight, and why it is not prunable; empty if it is prunable."""

    name: str
    shape: tuple[int, ...]
    reason: str
    source: tuple[str, str]  # the type of its module, and what to call it there

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class Selection:
    """Every weight of a model once: prunable, or not with a reason."""

    rows: tuple[WeightRow, ...]
    left_out: Mapping[str, str]  # reasons by parameter: of a computed weight those that it is computed from

    @property
    def selected(self) -> dict[str, int]:
        """Count of weights by prunable layer."""
        return {row.name: row.count for row in self.rows if not row.reason}

    @property
    def skipped(self) -> dict[str, str]:
        """Reason by weight that is not prunable."""
        return {row.name: row.reason for row in self.rows if row.reason}

    def advice(self) -> str | None:
        """What to do if few of the matrix weights are prunable: the argument that adds the others."""
        # Neither embeddings nor what the caller left out is missing.
        expected = [row for row in self.rows if not row.reason.startswith(LEFT_DENSE)]
        total, chosen = sum(row.count for row in expected), sum(self.selected.values())
        if chosen >= EXPECTED_SHARE * total:
            return None
        few = f"Only {chosen:,} of {total:,} matrix weights are prunable ({chosen / total:.0%})"
        reasons = "`print(sparsifier.summary())` lists all of them with the reasons."
        return ". ".join(filter(None, (few, self.remedy(), reasons)))

    def remedy(self) -> str:
        """The argument that adds what is not known, and why the largest of the others is left out; or nothing."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            if row.reason == NOT_KNOWN:
                found.setdefault(row.source[0], {})[row.source[1]] = None
        types = ", ".join(f"{kind}: {tuple(names)}" for kind, names in found.items())
        others = [row for row in self.rows if row.reason and not row.reason.startswith((*LEFT_DENSE, NOT_KNOWN))]
        largest = max(others, key=lambda row: row.count, default=None)
        parts = [f"`extra_prunable={{{types}}}` adds others"] * bool(types)
        parts += [f"`{largest.name}` is {largest.reason}"] if largest else []
        return ". ".join(parts)


def select_parameters(
    model: nn.Module,
    *,
    extra: PrunableModules | None = None,
    skip: Pattern | Iterable[Pattern] = (),
    only: Pattern | Iterable[Pattern] | None = None,
) -> tuple[dict[str, nn.Parameter], Selection]:
    """The prunable parameters by name, in the order of their modules, and the whole selection."""
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(f"`{name}` has no shape yet; run the model once first.")
    names = LayerNames(model)
    found, computed = _found(model, names, extra or {})
    adapters = adapter_weights(model)
    rows = {name: _row(model, names, name, computed, prunable=name in found) for name in names.aliases}
    rows |= {name: replace(rows[name], reason=adapters[name]) for name in adapters.keys() & rows.keys() - found.keys()}
    left_out = {name: row.reason for name, row in rows.items() if row.reason}
    skipped = names.matching(skip, "skip")
    named = set(found) if only is None else names.matching(only, "only", left_out)
    reasons = {name: UNNAMED for name in found if name not in named} | {
        name: SKIPPED for name in found if name in skipped
    }
    rows |= {name: replace(rows[name], reason=reason) for name, reason in reasons.items()}
    unique = {row.name: row for row in rows.values()}
    chosen = {name: parameter for name, parameter in found.items() if name not in reasons}
    return chosen, Selection(tuple(unique.values()), left_out | reasons)


def prunable_values(model: nn.Module, extra: PrunableModules | None = None) -> dict[str, Tensor]:
    """The values of all prunable weights, also of those that torch.nn.utils.prune computes."""
    names = LayerNames(model)
    found, computed = _found(model, names, extra or {})
    values: dict[str, Tensor] = {}
    for name in names.aliases:
        weight, value, reason = computed.get(name, (name, None, ""))
        if name in found:
            values[name] = found[name].detach()
        elif value is not None and reason == PRUNED_BY_TORCH:
            values[weight] = value.detach()
    return values


Computed = dict[str, tuple[str, Tensor, str]]
"""By the names of the parameters that a weight is computed from: the weight's name and value, and why it stays."""


def _found(model: nn.Module, names: LayerNames, extra: PrunableModules) -> tuple[dict[str, nn.Parameter], Computed]:
    """The candidates for pruning, by default or because of `extra`."""
    found: dict[str, nn.Parameter] = {}
    computed: Computed = {}
    unused = list(extra)
    dense = names.embeddings | adapter_weights(model).keys()
    for path, module in model.named_modules():
        asked: list[str] = []
        for kind in filter(lambda kind: names.is_kind(path, kind), extra):
            asked += _own(module, extra[kind])
            unused = [other for other in unused if other is not kind]
        for attribute in dict.fromkeys([*_by_default(module), *asked]):
            parameter, reason = _stored(module, attribute)
            if reason:
                weight = f"{path}.{attribute}".lstrip(".")
                value = getattr(module, attribute)
                computed |= {name: (weight, value, reason) for name in names.of.values() if _makes(name, weight)}
            elif parameter is not None and (attribute in asked or names.of[id(parameter)] not in dense):
                found[names.of[id(parameter)]] = parameter
    if unused:
        raise OptionError(f"`extra_prunable` names {shown(unused[0])}, and the model has no such module.")
    return found, computed


def _by_default(module: nn.Module) -> list[str]:
    kinds = type_names(module)
    wanted = [name for kind, attributes in PRUNABLE.items() if isinstance(module, kind) for name in attributes]
    return wanted + [name for kind, attributes in PRUNABLE_BY_NAME.items() if kind in kinds for name in attributes]


def _own(module: nn.Module, attributes: Sequence[str]) -> list[str]:
    """The module's attributes that these names and globs mean."""
    known = [name for name, _ in module.named_parameters(recurse=False)]
    known += [name for name in getattr(module, "parametrizations", {})]
    found = []
    for attribute in attributes:
        meant = [name for name in known if fnmatchcase(name, attribute)] or [attribute] * hasattr(module, attribute)
        if not meant:
            near = get_close_matches(attribute, known, n=1, cutoff=0)
            hint = f"did you mean `{near[0]}`?" if near else "it has no weights of its own."
            raise OptionError(f"`extra_prunable` names `{attribute}` of {type(module).__name__}; {hint}")
        found += meant
    return found


def _stored(module: nn.Module, attribute: str) -> tuple[nn.Parameter | None, str]:
    """The parameter whose zeros are zeros of a weight, or why there is none."""
    if parametrize.is_parametrized(module, attribute):
        chain: Any = module.parametrizations[attribute]  # type: ignore[index]
        kinds = {type(step) for step in chain}
        if kinds == {parametrizations._SpectralNorm}:
            return chain.original, ""
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        return None, WEIGHT_NORM if parametrizations._WeightNorm in kinds else COMPUTED_BY.format(names)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == attribute:
            return None, WEIGHT_NORM
        if isinstance(hook, SpectralNorm) and hook.name == attribute:
            attribute = f"{attribute}_orig"
        elif isinstance(hook, BasePruningMethod) and hook._tensor_name == attribute:
            return None, PRUNED_BY_TORCH
    parameter = getattr(module, attribute, None)
    return parameter if isinstance(parameter, nn.Parameter) else None, ""


def _makes(name: str, weight: str) -> bool:
    """Whether torch computes a weight from the parameter of this name."""
    path, _, attribute = weight.rpartition(".")
    dot = path and f"{path}."
    stored = (f"{dot}parametrizations.{attribute}.", f"{dot}{attribute}_")
    return name.startswith(stored[0]) or name in (f"{stored[1]}g", f"{stored[1]}v", f"{stored[1]}orig")


def _row(model: nn.Module, names: LayerNames, name: str, computed: Computed, *, prunable: bool) -> WeightRow:
    path, _, attribute = name.rpartition(".")
    module, parameter = model.get_submodule(path), model.get_parameter(name)
    source = (_type_name(module), "weight_*" if isinstance(module, nn.RNNBase) else attribute)
    reason = VECTOR if parameter.dim() < 2 or attribute.startswith("bias") else NOT_KNOWN
    if name in names.embeddings:
        reason = EMBEDDING + "".join(f", tied with `{other}`" for other in names.aliases[name] if other != name)
    if name in computed:
        name, value, reason = computed[name]
        return WeightRow(name, tuple(value.shape), reason, source)
    return WeightRow(name, tuple(parameter.shape), "" if prunable else reason, source)


def _type_name(module: nn.Module) -> str:
    kind = type(module)
    return f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__


def adapter_weights(model: nn.Module) -> dict[str, str]:
    """Why weights that peft has added or replaced are not prunable, by name; what it has wrapped is not among them."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        kinds = type_names(module)
        dot = path and f"{path}."
        if PEFT_LAYER in kinds:
            for name, _ in module.named_parameters():
                if not name.startswith("base_layer."):
                    found[dot + name] = ADAPTER
        elif PEFT_WRAPPER in kinds:
            for name, _ in module.named_parameters():
                if name.startswith("original_module."):
                    found[dot + name] = REPLACED
    return found


def type_names(module: nn.Module) -> set[str]:
    """The full names of a module's class and its bases, so that a package need not be installed.

    >>> "torch.nn.modules.linear.Linear" in type_names(nn.Linear(2, 2))
    True
    """
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__}
