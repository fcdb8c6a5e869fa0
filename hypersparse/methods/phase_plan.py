"""`plan_of`: the phases of a method that a run goes through."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypersparse.errors import OptionError, unknown
from hypersparse.methods.ablation import Ablation, ablated
from hypersparse.methods.base import Method, Phase
from hypersparse.plurals import how_many


def plan_of(
    method: Method,
    *,
    epochs: int,
    trained: bool = False,
    until: str | None = None,
    ablation: Ablation | None = None,
    change: Callable[[list[Phase]], list[Phase]] = list,
) -> list[Phase]:
    """The phases that will be run; `until` is the name of the last one, and `change` is applied before it is."""
    plan = [phase for phase in method.plan(epochs) if not (trained and phase.pretraining)]
    plan = change(ablated(plan, ablation or Ablation(), epochs=epochs))
    if until is None:
        return plan
    names = [phase.name for phase in plan]
    if until not in names:
        raise OptionError(unknown("phase", until, names))
    return plan[: names.index(until) + 1]


def epochs_in_words(plan: Sequence[Phase]) -> str:
    """The epochs of each phase, and of all.

    >>> epochs_in_words([Phase("search", epochs=300, stop_when=lambda state: False), Phase("train", epochs=20)])
    'Epochs: 1 to 300 search, 20 train; 21 to 320 in all.'
    """
    parts = ", ".join(f"{epoch_range(phase)} {phase.name}" for phase in plan if phase.epochs)
    return f"Epochs: {parts}; {epoch_range(*plan)} in all."


def epoch_range(*phases: Phase) -> str:
    """How many epochs phases take together, such as 21 to 320."""
    least, most = sum(map(_fewest, phases)), sum(phase.epochs for phase in phases)
    return str(most) if least == most else f"{least} to {most}"


def _fewest(phase: Phase) -> int:
    return 1 if phase.stop_when is not None else phase.epochs


def within(plan: Sequence[Phase], epochs: int) -> list[Phase]:
    """The plan within `epochs` epochs: open phases are shortened so that the others fit.

    >>> phases = [Phase("search", epochs=300, stop_when=lambda state: False), Phase("train", epochs=20)]
    >>> [phase.epochs for phase in within(phases, 100)]
    [80, 20]
    """
    least = list(map(_fewest, plan))
    if sum(least) > epochs:
        named = ", ".join(f"{phase.name} {count}" for phase, count in zip(plan, least, strict=True))
        raise OptionError(
            f"`max_steps` is enough for {how_many(epochs, 'epoch')}; this plan needs at least {sum(least)} ({named}). "
            "Raise it, or lower `epochs` or the method's own lengths."
        )
    spare, bounded = epochs - sum(least), []
    for phase, count in zip(plan, least, strict=True):
        longer = min(spare, phase.epochs - count)
        bounded.append(replace(phase, epochs=count + longer))
        spare -= longer
    return bounded
