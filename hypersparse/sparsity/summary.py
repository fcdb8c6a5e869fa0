"""`Summary`: the weights of a model as a table, to read before training."""

from dataclasses import dataclass

from hypersparse.plurals import how_many
from hypersparse.sparsity.limits import Limits
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import VECTOR, Selection, WeightRow

HEADER = ("layer", "shape", "prunable", "density", "why not")


@dataclass(frozen=True, repr=False)
class Summary:
    """Which weights may be pruned and why the others may not, as a table."""

    selection: Selection
    mask: Mask | None
    limits: Limits | None
    epochs: str = ""  # those of the plan, in words

    @property
    def rows(self) -> list[WeightRow]:
        """The weights of two or more dimensions."""
        return [row for row in self.selection.rows if row.reason != VECTOR]

    def density(self, layer: str) -> str:
        """The share that is kept now; before the first mask, what `densities` and `min_density` say."""
        if self.mask is not None:
            return f"{self.mask[layer].float().mean():.4g}" if layer in self.mask else "-"
        limits = self.limits
        if limits is None or layer not in {**limits.exact, **limits.least}:
            return "-"
        exact = layer in limits.exact
        count = limits.exact[layer] if exact else limits.least[layer]
        return f"{'' if exact else '>= '}{count / limits.sizes[layer]:.4g}"

    def __repr__(self) -> str:
        rows = self.rows
        table = [HEADER]
        for row in rows:
            shape, prunable = " x ".join(map(str, row.shape)), "no" if row.reason else f"{row.count:,}"
            table.append((row.name, shape, prunable, self.density(row.name), row.reason))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        total, selected = sum(row.count for row in rows), sum(row.count for row in rows if not row.reason)
        kept = "" if self.mask is None else f", and {self.mask.kept:,} are kept"
        vectors = len(self.selection.rows) - len(rows)
        others = how_many(vectors, "bias or norm is", "biases and norms are")
        lines.append(f"{selected:,} of {total:,} weights are prunable{kept}; {others} not.")
        lines += [self.epochs] if self.epochs else []
        return "\n".join(lines)
