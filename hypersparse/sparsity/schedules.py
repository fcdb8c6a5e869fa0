"""Factors on the learning rate, as functions of progress in [0, 1)."""

from collections.abc import Callable
from math import cos, pi

Schedule = Callable[[float], float]


def constant(progress: float) -> float:
    """Always 1."""
    return 1.0


def cosine(progress: float) -> float:
    """From 1 down to 0 along half a cosine wave.

    >>> cosine(0.0), round(cosine(0.5), 3)
    (1.0, 0.5)
    """
    return 0.5 * (1 + cos(pi * progress))


def multistep(milestones: tuple[float, ...] = (0.5, 0.75), gamma: float = 0.1) -> Schedule:
    """Multiply by `gamma` at each milestone, a fraction of the phase.

    >>> schedule = multistep()
    >>> [round(schedule(epoch / 160), 3) for epoch in (0, 79, 80, 119, 120, 159)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """

    def schedule(progress: float) -> float:
        return float(gamma ** sum(progress >= milestone for milestone in milestones))

    return schedule
