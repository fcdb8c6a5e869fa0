"""`plan_of`: the phases of a method that a run goes through."""

from hypersparse.errors import OptionError, unknown
from hypersparse.methods.ablation import Ablation, ablated
from hypersparse.methods.base import Method, Phase


def plan_of(
    method: Method, *, epochs: int, trained: bool = False, until: str | None = None, ablation: Ablation | None = None
) -> list[Phase]:
    """The phases that will be run; `until` is the name of the last one."""
    plan = [phase for phase in method.plan(epochs) if not (trained and phase.pretraining)]
    plan = ablated(plan, ablation or Ablation(), epochs=epochs)
    if until is None:
        return plan
    names = [phase.name for phase in plan]
    if until not in names:
        raise OptionError(unknown("phase", until, names))
    return plan[: names.index(until) + 1]
