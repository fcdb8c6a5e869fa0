"""`CollapseGuard`: detects masks that leave layers empty or disconnect the output."""

import warnings
from typing import Literal, get_args

from hypersparse.errors import CollapseError, CollapseWarning, OptionError
from hypersparse.sparsity.connectivity import find_paths
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights

OnCollapse = Literal["warn", "error", "ignore"]
NOT_RUN = (
    "The model cannot be run on an input of the shape {} ({}), so only empty layers are detected, not other collapse. "
    "Is `input_shape` that of one input, without the batch?"
)
ADVICE = "Lower the sparsity, or choose a method or distribution that gives every layer a budget."


class CollapseGuard:
    """Checks every new mask, and warns or raises an error once for the same finding.

    Without `input_shape`, the shape of one input, paths to the output are not checked.
    """

    def __init__(
        self, weights: PrunableWeights, *, input_shape: tuple[int, ...] | None, on_collapse: OnCollapse
    ) -> None:
        if on_collapse not in get_args(OnCollapse):
            raise OptionError(f"`on_collapse` is warn, error or ignore; got {on_collapse!r}.")
        self._weights, self._shape, self._on_collapse = weights, input_shape, on_collapse
        self._seen: Mask | None = None
        self._said: tuple[list[str], bool | None] = ([], True)
        self._told = False  # that paths cannot be followed

    def accept(self) -> None:
        """Accept the current mask without a check, as after loading a checkpoint."""
        self._seen = self._weights.mask

    def look(self, moment: str, *, briefly: bool = False) -> None:
        """Check the current mask if it is new; `briefly` follows paths only after another layer became empty."""
        mask = self._weights.mask
        if self._on_collapse == "ignore" or mask is None or mask is self._seen:
            return
        if briefly and [name for name, kept in mask.kept_by_layer().items() if kept == 0] == self._said[0]:
            return
        self._seen = mask
        paths = find_paths(self._weights.model, mask, self._shape)
        if paths.problem and not self._told:
            self._told = True
            warnings.warn(NOT_RUN.format(self._shape, paths.problem), CollapseWarning, stacklevel=2)
        finding = (paths.empty, paths.connected)
        if not paths.collapsed:
            return
        text = f"{moment}: {paths} {ADVICE}"
        if self._on_collapse == "error":
            raise CollapseError(text)
        if finding != self._said:
            self._said = finding
            warnings.warn(text, CollapseWarning, stacklevel=2)
