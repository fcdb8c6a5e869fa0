r"""The record of a run: `record.npz`, the data of every epoch that figures and tables need, without weights.

M_e are the `keep` weights with the largest magnitude after epoch e, for the run's own sparsity. Arrays over epochs
have NaN or -1 for epochs without data: once the final mask holds, or if an epoch was trained without a record.

| name | shape | content |
| --- | --- | --- |
| `phase` | epochs | name of the phase |
| `sparsity`, `keep` | | of M_e; NaN and -1 for a method that does not end with a fixed share of the weights |
| `layers`, `total_by_layer` | layers | name and number of weights of each prunable layer |
| `kept_by_layer` | epochs, layers | weights of M_e in each layer |
| `crossed` | epochs | weights of M_e that were not in the epoch before's; as many went the other way |
| `w_kappa` | epochs | smallest magnitude in M_e |
| `intersection` | epochs | share of the final mask that M_e has; empty for a run without a mask |
| `dense_correct` | samples | how often the dense network got a training image right: at first, and after each epoch |
| `pruned_correct` | samples | the same for pruned copies: before the penalty, and after each epoch with it |
| `dense_epochs`, `pruned_epochs` | | over how many networks these two count; with 0 they are empty |
| `final_sample` | bytes | the final mask at up to 2^19 evenly spaced weights, 8 to a byte, to compare seeds by |
| `class_correct` | epochs, classes | test images of each class that the network got right |
| `class_total` | classes | test images of each class |
| `curve_epochs` | curves | every tenth epoch with a penalty, from its first one; counted over the whole run |
| `curve_place` | 1000 | places from the smallest weight (0) to the largest (1), denser towards the largest |
| `curve_magnitude` | curves, 1000 | the sorted \|w\| there |
| `curve_gradient` | curves, 1000 | \|gradient\| of the penalty there, without its strength |

Without a sparsity `kept_by_layer`, `crossed`, `w_kappa` and `intersection` are empty. Samples are in file order,
without held-out ones, not augmented; where the method scores augmented images `pruned_correct` is empty.
"""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hypersparse.data.npz_file import Arrays, read_arrays
from hypersparse.errors import DataError, RunError
from hypersparse.methods.base import Method
from hypersparse.sparsity.distributions import PAPER_SPARSITIES, keep_count
from hypersparse.storage.files import write_atomically
from hypersparse.storage.history import Epoch, innermost, unpack_bits
from hypersparse.storage.schemas import damaged

CURVE_ROWS = 3  # magnitudes, gradients, places
SAMPLED = 2**19  # weights of the final mask
NUMBER, WHOLE, NAME = "iuf", "iu", "U"  # kinds of arrays
ARRAYS = {  # kind and axes of each
    "phase": (NAME, 1),
    "sparsity": (NUMBER, 0),
    "keep": (WHOLE, 0),
    "layers": (NAME, 1),
    "total_by_layer": (WHOLE, 1),
    "kept_by_layer": (WHOLE, 2),
    "crossed": (WHOLE, 1),
    "w_kappa": (NUMBER, 1),
    "intersection": (NUMBER, 1),
    "final_sample": (WHOLE, 1),
    "dense_correct": (WHOLE, 1),
    "dense_epochs": (WHOLE, 0),
    "pruned_correct": (WHOLE, 1),
    "pruned_epochs": (WHOLE, 0),
    "class_correct": (WHOLE, 2),
    "class_total": (WHOLE, 1),
    "curve_epochs": (WHOLE, 1),
    "curve_place": (NUMBER, 1),
    "curve_magnitude": (NUMBER, 2),
    "curve_gradient": (NUMBER, 2),
}
ALIKE = (  # equally long, or empty
    ("phase", "kept_by_layer", "crossed", "w_kappa", "intersection", "class_correct"),
    ("layers", "total_by_layer"),
    ("dense_correct", "pruned_correct"),
    ("curve_epochs", "curve_magnitude", "curve_gradient"),
)
MANTISSA_BITS = 10  # kept of the curves, as in float16, whose range is too small for them


@dataclass(frozen=True, eq=False)
class Known:
    """The data of a record that are not in the history."""

    phases: Sequence[str]  # the name of each epoch's
    sparsity: float | None
    totals: Mapping[str, int]  # prunable weights by layer
    final: Tensor | None  # the final mask, as one long vector
    samples: int  # training images
    class_total: NDArray[Any]  # test images by class
    device: torch.device


def levels_of(method: Method) -> list[float]:
    """The sparsities whose masks are recorded: the method's own and the paper's; none if it has no sparsity."""
    own = method.sparsity
    return [] if own is None else sorted({*PAPER_SPARSITIES, own})


def make_record(history: Iterable[Epoch | None], known: Known) -> Arrays:
    """Compute the arrays of a record from the history."""
    masks, dense, pruned = _Masks(known), _Count(known.samples), _Count(known.samples)
    class_correct: list[Any] = []
    curves: dict[int, Tensor] = {}
    for number, content in enumerate(history):
        epoch = content or {}
        masks.add(epoch)
        for name, count in (("dense", dense), ("pruned", pruned)):
            count.add(epoch.get(f"{name}_at_start"))
            count.add(epoch.get(name))
        correct = epoch.get("class_correct")
        class_correct.append([-1] * len(known.class_total) if correct is None else correct.tolist())
        curve = epoch.get("curve")
        if curve is not None:
            curves[number] = curve
    return {
        "phase": np.array(known.phases, dtype=np.str_),
        **masks.arrays(),
        "final_sample": sample_of(known.final),
        "dense_correct": dense.array(),
        "dense_epochs": np.array(dense.epochs),
        "pruned_correct": pruned.array(),
        "pruned_epochs": np.array(pruned.epochs),
        "class_correct": np.array(class_correct, dtype=np.int32).reshape(-1, len(known.class_total)),
        "class_total": known.class_total.astype(np.int32),
        **_curve_arrays(curves),
    }


def sample_of(final: Tensor | None) -> NDArray[np.uint8]:
    """The final mask at evenly spaced weights, packed: all of a small mask, and empty without a mask."""
    if final is None:
        return np.zeros(0, dtype=np.uint8)
    count = min(len(final), SAMPLED)
    places = torch.arange(count, device=final.device) * len(final) // count
    return np.packbits(final[places].cpu().numpy())


class _Masks:
    """Compares each epoch's mask with the one before and with the final one."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._total = sum(known.totals.values())
        self._before: Tensor | None = None
        self._rows: list[tuple[list[int], int, float, float]] = []

    def add(self, epoch: Epoch) -> None:
        """Add the next epoch, which may have no mask."""
        levels, sparsity = epoch.get("levels", []), self._known.sparsity
        if sparsity not in levels:
            self._before = None
            self._rows.append(([-1] * len(self._known.totals), -1, np.nan, np.nan))
            return
        own = levels.index(sparsity)
        mask = innermost([bits.to(self._known.device) for bits in epoch["masks"][: own + 1]], self._total)
        kept = torch.stack([layer.sum() for layer in torch.split(mask, list(self._known.totals.values()))])
        crossed = -1 if self._before is None else int((mask & ~self._before).sum())
        final = self._known.final
        common = np.nan if final is None else int((mask & final).sum()) / int(final.sum())
        self._rows.append((kept.tolist(), crossed, float(epoch["w_kappa"][own]), common))
        self._before = mask

    def arrays(self) -> Arrays:
        """What was found; rows only for a method with a sparsity, and intersections only if there is a final mask."""
        sparsity, totals = self._known.sparsity, self._known.totals
        rows = self._rows if sparsity is not None else []
        return {
            "sparsity": np.array(np.nan if sparsity is None else sparsity),
            "keep": np.array(-1 if sparsity is None else keep_count(self._total, sparsity)),
            "layers": np.array(list(totals), dtype=np.str_),
            "total_by_layer": np.array(list(totals.values()), dtype=np.int32),
            "kept_by_layer": np.array([row[0] for row in rows], dtype=np.int32).reshape(-1, len(totals)),
            "crossed": np.array([row[1] for row in rows], dtype=np.int32),
            "w_kappa": np.array([row[2] for row in rows], dtype=np.float32),
            "intersection": np.array([row[3] for row in rows if self._known.final is not None]),
        }


class _Count:
    """How often each sample was right."""

    def __init__(self, samples: int) -> None:
        self.epochs = 0
        self._counts = np.zeros(samples, dtype=np.uint16)

    def add(self, packed: Tensor | None) -> None:
        """Take the next epoch, in which samples may not have been looked at."""
        if packed is not None:
            self.epochs += 1
            self._counts += unpack_bits(packed, len(self._counts)).numpy()

    def array(self) -> NDArray[np.uint16]:
        """The counts; empty without an epoch."""
        return self._counts if self.epochs else self._counts[:0]


def _curve_arrays(curves: Mapping[int, Tensor]) -> Arrays:
    stacked = torch.stack(list(curves.values())) if curves else torch.zeros(0, CURVE_ROWS, 0)
    return {
        "curve_place": stacked[0, 2].numpy() if curves else np.zeros(0),
        "curve_epochs": np.array(list(curves), dtype=np.int32),
        "curve_magnitude": _rounded(stacked[:, 0]),
        "curve_gradient": _rounded(stacked[:, 1]),
    }


def _rounded(values: Tensor) -> NDArray[np.float32]:
    """float32 with a shorter mantissa, which compresses to half the size."""
    mantissas, exponents = np.frexp(values.numpy())
    steps = 2.0 ** (MANTISSA_BITS + 1)
    rounded: NDArray[np.float32] = np.ldexp(np.round(mantissas * steps) / steps, exponents).astype(np.float32)
    return rounded


def write_record(path: Path, record: Arrays) -> None:
    """Write a record atomically and compressed; equal arrays give equal bytes."""

    def write(beside: Path) -> None:
        with zipfile.ZipFile(beside, "w") as archive:
            for name, array in record.items():
                member = zipfile.ZipInfo(f"{name}.npy")  # not numpy's savez: it puts the time of day in
                member.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(member, "w") as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)

    write_atomically(path, write)


def read_record(path: str | Path) -> Arrays:
    """The arrays of a record, by name; `path` is the file or its run's folder."""
    path = Path(path)
    file = path / "record.npz" if path.is_dir() else path
    if not file.exists():
        raise RunError(f"There is no record {file}: the run is not finished, or it was trained with --no-record.")
    advice = "Copy it again, or train the run again."
    try:
        arrays = read_arrays(file)
        _check_arrays(arrays)
    except DataError as error:
        raise damaged(file, error.__cause__, advice) from None
    except ValueError as error:
        raise damaged(file, error, advice) from None
    return arrays


def _check_arrays(arrays: Arrays) -> None:
    """Kinds and axes of the arrays that every record has, and that those with a place for each epoch are as long."""
    for name, (kind, axes) in ARRAYS.items():
        if name not in arrays:
            raise ValueError(f"it has no array `{name}`")
        if arrays[name].dtype.kind not in kind or arrays[name].ndim != axes:
            raise ValueError(f"its array `{name}` is {arrays[name].dtype} with {arrays[name].ndim} axes")
    for names in ALIKE:
        if len({len(arrays[name]) for name in names if len(arrays[name])}) > 1:
            raise ValueError(f"its arrays {', '.join(names)} are not equally long")
