"""`Mask`: the kept weights, as an immutable value."""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from hypersparse.distributed.shards import Shards, Ties, is_sharded
from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.plurals import how_many
from hypersparse.sparsity.selection import PrunableModules, prunable_values, unwrap

Scores = Mapping[str, Tensor]
Budget = Mapping[str, int]
FEW_WEIGHTS, MOST_WEIGHTS_PER_BYTE = 2**26, 1000  # of a mask in a file; one of 99.8 % sparsity has some 400
NOT_FINITE = (
    "A score is not a number: the weights or gradients it came from are not finite. Look at the inputs and the loss, "
    "and try a lower learning rate."
)


def kth_largest(values: Tensor, k: int) -> Tensor:
    """The k-th largest of a vector (k = 1 is the maximum), selected without sorting it.

    >>> kth_largest(torch.tensor([3.0, 1.0, 2.0, 4.0]), 3)
    tensor(2.)
    """
    total = values.numel()
    if k <= total // 2 + 1:
        return values.topk(k, sorted=False).values.min()
    return values.topk(total - k + 1, largest=False, sorted=False).values.max()


class Mask(Mapping[str, Tensor]):
    """A boolean tensor per prunable weight, True = kept. Masks are immutable.

    Masks of the same layers combine with `&`, `|`, `^`, `-` and `~` and compare with `==`. The layers of a model under
    `fully_shard` are sharded as its weights are; all ranks make such masks, combine and count them together.

    >>> mask = Mask.top({"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([2.0, 2.0])}, keep=2)
    >>> mask
    Mask(2 of 4 kept, sparsity 0.5, 2 layers)
    >>> mask.kept_by_layer()  # of the two equal scores the first one stays
    {'a': 1, 'b': 1}
    >>> (mask & ~mask).kept
    0
    """

    def __init__(self, layers: Mapping[str, Tensor]) -> None:
        if not layers:
            raise OptionError("A mask has at least one layer; none was given.")
        for name, layer in layers.items():
            if layer.dtype != torch.bool:
                raise OptionError(f"A mask holds booleans; layer `{name}` is {layer.dtype}.")
        self._layers = MappingProxyType({name: layer.detach() for name, layer in layers.items()})
        self._counts: dict[str, int] | None = None  # kept by layer, where all ranks had to count it

    @classmethod
    def top(cls, scores: Scores, keep: int) -> "Mask":
        """Keep exactly `keep` weights, those with the largest scores over all layers; of equal ones the first."""
        return cls._by_score(scores, keep, "first")

    @classmethod
    def strictly_above(cls, scores: Scores, keep: int) -> "Mask":
        """The rule of the authors' code: keep what is larger than the `keep`-th largest score.

        So that one and all equal to it go too: at most `keep - 1` remain.
        """
        return cls._by_score(scores, keep, "none", least=2)

    @classmethod
    def at_least(cls, scores: Scores, keep: int) -> "Mask":
        """Keep what is not smaller than the `keep`-th largest score: all of equal ones, so `keep` or more."""
        return cls._by_score(scores, keep, "all")

    @classmethod
    def top_by_layer(cls, scores: Scores, budget: Budget) -> "Mask":
        """Keep exactly `budget[name]` weights in each layer."""
        if budget.keys() != scores.keys():
            raise OptionError(f"The budget names the layers {list(budget)}; the scores have {list(scores)}.")
        for name, layer in scores.items():
            _check_keep(budget[name], least=0, most=layer.numel())
        if is_sharded(scores):
            return cls(_checked(Shards(scores)).largest_by_layer(budget))
        pieces = torch.split(_flat(scores), [layer.numel() for layer in scores.values()])
        layers: dict[str, Tensor] = {}
        for (name, layer), piece in zip(scores.items(), pieces, strict=True):
            chosen = (
                _largest(piece, budget[name], "first") if budget[name] else torch.zeros_like(piece, dtype=torch.bool)
            )
            layers[name] = chosen.view(layer.shape)
        return cls(layers)

    @classmethod
    def _by_score(cls, scores: Scores, keep: int, ties: Ties, *, least: int = 1) -> "Mask":
        if not scores:
            raise OptionError("A mask has at least one layer; no scores were given.")
        _check_keep(keep, least=least, most=sum(layer.numel() for layer in scores.values()))
        if is_sharded(scores):
            return cls(_checked(Shards(scores)).largest(keep, ties))
        return cls.from_vector(_largest(_flat(scores), keep, ties), scores)

    @classmethod
    def all_kept(cls, like: Mapping[str, Tensor]) -> "Mask":
        """Every weight kept."""
        return cls({name: torch.ones_like(layer, dtype=torch.bool) for name, layer in like.items()})

    @classmethod
    def from_zeros(cls, model: nn.Module, *, extra_prunable: PrunableModules | None = None) -> "Mask":
        """The mask of a model that was pruned elsewhere: False where a prunable weight is 0.0.

        Layers under `torch.nn.utils.prune` are read too, under the names they have after `prune.remove`.
        """
        values = prunable_values(unwrap(model), extra_prunable)
        mask = cls({name: value != 0 for name, value in values.items()})
        if mask.kept == mask.total:
            raise ModelError(
                "No prunable weight of this model is exactly 0.0. If some were only shrunk, choose the mask by "
                "magnitude: Mask.top(hypersparse.scores.magnitude(PrunableWeights(model)), keep)."
            )
        return mask

    @classmethod
    def from_vector(cls, vector: Tensor, like: Mapping[str, Tensor]) -> "Mask":
        """Cut one long boolean vector into the shapes of `like`, in its order."""
        pieces = torch.split(vector, [layer.numel() for layer in like.values()])
        return cls({name: piece.view(like[name].shape) for name, piece in zip(like, pieces, strict=True)})

    def __getitem__(self, name: str) -> Tensor:
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return f"Mask({self.kept} of {self.total} kept, sparsity {self.sparsity:.4g}, {how_many(len(self), 'layer')})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        if self.is_sharded and list(self) == list(other):
            return (self ^ other).kept == 0
        return list(self) == list(other) and all(torch.equal(self[name], other[name]) for name in self)

    __hash__ = None  # type: ignore[assignment]  # equal masks on two devices would hash apart

    @property
    def is_sharded(self) -> bool:
        """Whether its layers are spread over several ranks."""
        return is_sharded(self._layers)

    @property
    def kept(self) -> int:
        """Weights kept, over all layers."""
        return sum(self.kept_by_layer().values())

    @property
    def total(self) -> int:
        """Weights, kept or not."""
        return sum(layer.numel() for layer in self._layers.values())

    @property
    def density(self) -> float:
        """Fraction kept."""
        return self.kept / self.total

    @property
    def sparsity(self) -> float:
        """Fraction removed."""
        return 1 - self.kept / self.total

    def kept_by_layer(self) -> dict[str, int]:
        """Weights kept in each layer."""
        if self._counts is not None:
            return dict(self._counts)
        if self.is_sharded:  # once: afterwards one rank may ask alone, for instance to print it
            self._counts = dict(zip(self._layers, Shards(self._layers).sums(), strict=True))
            return dict(self._counts)
        counts = torch.stack([layer.sum() for layer in self._layers.values()]).tolist()
        return dict(zip(self._layers, counts, strict=True))

    def vector(self) -> Tensor:
        """All layers as one long boolean vector."""
        return torch.cat([layer.flatten() for layer in self._layers.values()])

    def intersection(self, other: "Mask") -> float:
        """Fraction of this mask's kept weights that `other` keeps too."""
        return (self & other).kept / self.kept

    def to(self, device: torch.device | str) -> "Mask":
        """The same mask on another device."""
        return Mask({name: layer.to(device) for name, layer in self._layers.items()})

    def apply_to_(self, model: nn.Module) -> None:
        """Zero the dropped weights of any model with these layers, for instance an average of weights."""
        with torch.no_grad():
            for name, parameter in self._parameters_of(model).items():
                parameter.masked_fill_(~self[name].to(parameter.device), 0.0)

    def check_zeros(self, model: nn.Module) -> None:
        """Raise an error if a weight of the model that this mask drops is not 0.0."""
        for name, parameter in self._parameters_of(model).items():
            if wrong := int((parameter.detach()[~self[name].to(parameter.device)] != 0).sum()):
                raise ModelError(
                    f"{how_many(wrong, 'weight')} of `{name}` should be 0.0 by the mask: something changed the model, "
                    "or the mask is another network's. Call `mask.apply_to_(model)` if they should be 0.0."
                )

    def _parameters_of(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """The model's parameters that the mask is of."""
        parameters = dict(unwrap(model).named_parameters())
        for name, layer in self._layers.items():
            if name not in parameters or parameters[name].shape != layer.shape:
                raise ModelError(f"The mask has a layer `{name}` of shape {tuple(layer.shape)} that the model has not.")
        return {name: parameters[name] for name in self._layers}

    def pack(self) -> dict[str, Tensor]:
        """Compress the mask, one bit per weight: a uint8 tensor per layer, on the CPU."""
        if self.is_sharded:
            raise OptionError(
                "The mask is sharded over ranks, and a file of it has all of it; save the state of the training with "
                "`hypersparse.distributed.save_checkpoint`."
            )
        return {name: _pack(layer) for name, layer in self._layers.items()}

    @classmethod
    def unpack(cls, packed: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> "Mask":
        """The inverse of `pack`."""
        layers = {}
        for name, shape in shapes.items():
            bits = _unpack(packed[name], torch.Size(shape).numel()) if name in packed else None
            if bits is None:
                raise ModelError(f"The packed mask does not fit layer `{name}` of shape {tuple(shape)}.")
            layers[name] = bits.view(*shape)
        return cls(layers)

    def save(self, path: str | Path) -> None:
        """Write the mask atomically as a safetensors file, one bit per weight."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = Path(path)
        shapes = json.dumps({name: list(layer.shape) for name, layer in self._layers.items()})
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            save_file(self.pack(), str(beside), metadata={"hypersparse_mask": shapes})
            beside.replace(path)
        except (SafetensorError, OSError) as error:
            beside.unlink(missing_ok=True)
            raise RunError(f"The mask could not be written to {path}: {error}.") from None

    @classmethod
    def load(cls, path: str | Path) -> "Mask":
        """Read a mask written by `save`."""
        from safetensors import safe_open

        try:
            with safe_open(str(path), "pt") as file:
                shapes = json.loads((file.metadata() or {})["hypersparse_mask"])
                packed = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                _check_claims(packed, shapes)
                return cls.unpack(packed, shapes)
        except FileNotFoundError:
            raise RunError(f"There is no mask file {path}.") from None
        except Exception as error:  # a file of another kind raises any of half a dozen
            raise RunError(f"{path} is not a mask file written by `Mask.save`: {error}.") from None

    def __invert__(self) -> "Mask":
        return Mask({name: ~layer for name, layer in self._layers.items()})

    def __and__(self, other: "Mask") -> "Mask":
        return self._with(other, torch.logical_and)

    def __or__(self, other: "Mask") -> "Mask":
        return self._with(other, torch.logical_or)

    def __xor__(self, other: "Mask") -> "Mask":
        return self._with(other, torch.logical_xor)

    def __sub__(self, other: "Mask") -> "Mask":
        return self & ~other

    def _with(self, other: "Mask", combine: Callable[[Tensor, Tensor], Tensor]) -> "Mask":
        if list(self) != list(other) or any(self[name].shape != other[name].shape for name in self):
            raise OptionError("Only masks of the same layers can be combined; these two differ in layers.")
        return Mask({name: combine(layer, other[name]) for name, layer in self._layers.items()})


def _check_keep(keep: int, *, least: int, most: int) -> None:
    if not least <= keep <= most:
        raise OptionError(f"`keep` is a count from {least} to {most}; got {keep}.")


def _flat(scores: Scores) -> Tensor:
    flat = torch.cat([layer.detach().flatten() for layer in scores.values()])
    if flat.isnan().any():
        raise OptionError(NOT_FINITE)
    return flat


def _checked(scores: Shards) -> Shards:
    if scores.has_nan():
        raise OptionError(NOT_FINITE)
    return scores


def _largest(scores: Tensor, keep: int, ties: Ties) -> Tensor:
    """Which are the `keep` largest scores, without synchronizing with a GPU; of equal ones the first, all or none."""
    threshold = kth_largest(scores, keep)
    if ties == "all":
        return scores >= threshold
    above, equal = scores > threshold, scores == threshold
    return above if ties == "none" else above | (equal & (equal.cumsum(0) <= keep - above.sum()))


def _pack(layer: Tensor) -> Tensor:
    bits = np.packbits(layer.flatten().cpu().numpy())
    return torch.frombuffer(bytearray(zlib.compress(bits.tobytes(), level=1)), dtype=torch.uint8)


def _check_claims(packed: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> None:
    """Bits that are all zero take a thousandth of a byte each: 1 MB may claim a mask of 8 GB."""
    claimed = sum(torch.Size(shape).numel() for shape in shapes.values())
    most = FEW_WEIGHTS + MOST_WEIGHTS_PER_BYTE * sum(bits.numel() for bits in packed.values())
    if claimed > most:
        raise ValueError(f"it claims {claimed} weights, and {most} are the most for its size")


def _unpack(packed: Tensor, count: int) -> Tensor | None:
    """`count` booleans, or None where the bytes hold anything else; never more memory than they need."""
    size = (count + 7) // 8
    try:
        raw = zlib.decompressobj().decompress(packed.cpu().numpy().tobytes(), max_length=size + 1)
    except zlib.error:
        return None
    if len(raw) != size:
        return None
    return torch.from_numpy(np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=count).astype(bool))
