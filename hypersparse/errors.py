"""Everything that can go wrong, as a tree.

    HypersparseError
    ├── OptionError      a name or value in an option, a recipe or a call that cannot be used
    ├── ModelError       a model that cannot be made sparse, or weights that do not fit it
    ├── DataError        a data set that is missing, damaged or of the wrong shape
    ├── LoopError        a call forgotten or misplaced in a training loop
    ├── RunError         a run folder that cannot be used: locked, foreign, damaged, not writable
    ├── DivergedError    the loss is no longer a finite number
    └── CollapseError    a mask left a layer without weights, or no path to the output, where that was to be an error

Where it was not, the same sentence is a `CollapseWarning`.
A message is one sentence or two: what was expected, what came, what to do.
The command line prints it and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class HypersparseError(Exception):
    """Base of every error this package raises on purpose."""


class OptionError(HypersparseError, ValueError):
    """A name or value in an option, a recipe or a call that cannot be used."""


class ModelError(HypersparseError):
    """A model that cannot be made sparse, or weights that do not fit it."""


class DataError(HypersparseError):
    """A data set that is missing, damaged or of the wrong shape."""


class LoopError(HypersparseError):
    """A call forgotten or misplaced in a training loop."""


class RunError(HypersparseError):
    """A run folder that cannot be used: locked, foreign, damaged or not writable."""


class DivergedError(HypersparseError):
    """The loss is no longer a finite number."""


class CollapseError(HypersparseError):
    """A mask left a layer without weights, or no path from input to output; or it is not known whether one remains."""


class CollapseWarning(UserWarning):
    """A mask left a layer without weights, or no path from input to output."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name nobody knows, with the nearest one that exists.

    >>> unknown("method", "artt", ["art", "snip"])
    'There is no method `artt`; did you mean `art`? Known: art, snip.'
    >>> unknown("dense option", "sparsity", [])
    'There is no dense option `sparsity`, nor any other.'
    """
    known = sorted(known)
    if not known:
        return f"There is no {kind} `{name}`, nor any other."
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    return f"There is no {kind} `{name}`{hint} Known: {', '.join(known)}."
