"""Values of C that are read with other axes: rows of elements evenly apart, by `view_t`."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypersparse_runtime.views import View

MOST_AXES = 8  # of a value


@dataclass(frozen=True)
class CView:
    """The sides of the axes, which views that are read together share, and how far apart elements are along each."""

    first: int
    sides: tuple[int, ...]
    steps: tuple[int, ...]


def joint_views(views: Sequence[View]) -> list[CView]:
    """Views of equal shapes with as few axes as all of them permit.

    >>> joint_views([View.whole("x", (2, 3, 4)), View.whole("y", (2, 1, 1)).expanded((2, 3, 4))])
    [CView(first=0, sides=(2, 12), steps=(12, 1)), CView(first=0, sides=(2, 12), steps=(1, 0))]
    """
    sides: list[int] = []
    steps: list[list[int]] = []  # of each axis, of each view
    for axis, side in enumerate(views[0].shape):
        own = [view.axes[axis][0][1] for view in views]
        if side == 1:
            continue
        if sides and steps[-1] == [step * side for step in own]:
            sides[-1], steps[-1] = sides[-1] * side, own
        else:
            sides.append(side)
            steps.append(own)
    return [CView(view.first, tuple(sides), tuple(each[n] for each in steps)) for n, view in enumerate(views)]
