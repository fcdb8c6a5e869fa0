"""Factors on the learning rate."""

from math import cos, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypersparse.sparsity.schedules import Schedule, constant, cosine, multistep

progress = st.floats(0, 1, exclude_max=True)


@given(at=progress)
def test_constant(at: float) -> None:
    assert constant(at) == 1.0


@pytest.mark.parametrize("at", [0.0, 0.25, 1 / 3, 0.75])
def test_cosine(at: float) -> None:
    assert cosine(at) == pytest.approx((1 + cos(pi * at)) / 2)
    assert cosine(at) + cosine(1 - at) == pytest.approx(1)


@pytest.mark.parametrize(("epochs", "first", "second"), [(160, 80, 120), (300, 150, 225), (4, 2, 3)])
def test_the_papers_drops(epochs: int, first: int, second: int) -> None:
    factors = [multistep()(epoch / epochs) for epoch in range(epochs)]
    assert factors == pytest.approx([1.0] * first + [0.1] * (second - first) + [0.01] * (epochs - second), rel=1e-12)


def test_other_drops() -> None:
    schedule = multistep((0.2, 0.6, 0.8), gamma=0.5)
    assert [schedule(at) for at in (0.0, 0.2, 0.59, 0.6, 0.9)] == [1.0, 0.5, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("schedule", [constant, cosine, multistep()])
@given(early=progress, late=progress)
def test_the_rate_never_rises_and_stays_positive(schedule: Schedule, early: float, late: float) -> None:
    early, late = sorted((early, late))
    assert 1 >= schedule(early) >= schedule(late) >= 0
    assert schedule(0.0) == 1.0
