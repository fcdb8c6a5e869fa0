"""`Summary`: the weights of a model as a table, to read before training."""

from dataclasses import dataclass
from math import prod

from hypersparse.sparsity.limits import Limits
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import VECTOR, Selection

HEADER = ("layer", "shape", "prunable", "density", "why not")


@dataclass(frozen=True)
class SummaryRow:
    """One weight of two or more dimensions."""

    layer: str
    shape: tuple[int, ...]
    prunable: bool
    density: str  # kept now; before the first mask what `densities` and `min_density` say
    why_not: str

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shape = " x ".join(map(str, self.shape))
        return self.layer, shape, f"{prod(self.shape):,}" if self.prunable else "no", self.density, self.why_not


@dataclass(frozen=True, repr=False)
class Summary:
    """What may be pruned and what not, as a table."""

    rows: tuple[SummaryRow, ...]
    vectors: int  # biases and norms, which have no row
    mask: Mask | None

    def __repr__(self) -> str:
        table = [HEADER, *(row.cells() for row in self.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        total = sum(prod(row.shape) for row in self.rows)
        prunable = sum(prod(row.shape) for row in self.rows if row.prunable)
        kept = "" if self.mask is None else f", and {self.mask.kept:,} are kept"
        lines.append(f"{prunable:,} of {total:,} weights are prunable{kept}; {self.vectors} biases and norms are not.")
        return "\n".join(lines)


def summarize(selection: Selection, mask: Mask | None, limits: Limits | None) -> Summary:
    """The table of a selection, with the densities of a mask."""
    densities = {} if limits is None else _planned(limits)
    if mask is not None:
        densities = {name: f"{layer.float().mean():.4g}" for name, layer in mask.items()}
    matrices = [row for row in selection.rows if row.reason != VECTOR]
    rows = [
        SummaryRow(row.name, row.shape, not row.reason, densities.get(row.name, "-"), row.reason) for row in matrices
    ]
    return Summary(tuple(rows), len(selection.rows) - len(rows), mask)


def _planned(limits: Limits) -> dict[str, str]:
    least = {name: f">= {count / limits.sizes[name]:.4g}" for name, count in limits.least.items()}
    return least | {name: f"{count / limits.sizes[name]:.4g}" for name, count in limits.exact.items()}
