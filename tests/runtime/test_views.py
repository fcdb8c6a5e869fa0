"""Views: whatever is done to axes is what numpy does to an array."""

from random import Random

import numpy as np
import pytest

from hypersparse_runtime.views import View


@pytest.mark.parametrize("seed", range(100))
def test_axes_are_changed_as_in_numpy(seed: int) -> None:
    random = Random(seed)
    shape = tuple(random.choice((1, 2, 3, 4, 6)) for _ in range(random.randint(1, 4)))
    array = np.arange(np.prod(shape)).reshape(shape)
    view = View.whole("x", shape)
    for _ in range(8):
        view, array = changed(view, array, random)
        assert view.shape == array.shape
        np.testing.assert_array_equal(view.indices(), array)
        whole = sorted(array.ravel().tolist()) == list(range(int(np.prod(shape))))
        assert not view.covers(shape) or whole
        assert not view.is_whole(shape) or array.ravel().tolist() == list(range(int(np.prod(shape))))


def changed(view: View, array: np.ndarray, random: Random) -> tuple[View, np.ndarray]:
    """After one operation, if a view can have it."""
    kind = random.choice(("permute", "reshape", "slice", "expand"))
    if kind == "permute":
        order = random.sample(range(array.ndim), array.ndim)
        return view.permuted(order), array.transpose(order)
    if kind == "expand":
        shape = tuple(3 if side == 1 else side for side in array.shape)
        return (view.expanded(shape), np.broadcast_to(array, shape)) if array.size < 500 else (view, array)
    if kind == "slice":
        axis = random.randrange(array.ndim)
        start, step = random.randrange(array.shape[axis]), random.choice((1, 2))
        length = random.randint(1, (array.shape[axis] - start + step - 1) // step)
        made = view.sliced(axis, start, length, step)
        return (
            (view, array) if made is None else (made, np.take(array, range(start, start + length * step, step), axis))
        )
    left, sides = array.size, []
    while left > 1 and len(sides) < 4:
        sides.append(random.choice([side for side in range(1, left + 1) if left % side == 0]))
        left //= sides[-1]
    sides.append(left)
    made = view.reshaped(tuple(sides))
    return (view, array) if made is None else (made, array.reshape(sides))
