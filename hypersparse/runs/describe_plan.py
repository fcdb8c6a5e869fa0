"""`describe_plan`: the phases of a recipe in words."""

from collections.abc import Callable
from typing import NamedTuple

from hypersparse.methods.base import Phase, action_name
from hypersparse.methods.phase_plan import epoch_range
from hypersparse.recipe import Recipe
from hypersparse.sparsity.schedules import cosine


class PhaseWords(NamedTuple):
    """A phase, or the total, as text."""

    name: str
    epochs: str
    learning_rate: str = ""
    what_happens: str = ""


def describe_plan(recipe: Recipe) -> list[PhaseWords]:
    """The phases of a recipe, and their total."""
    phases = recipe.plan()
    found = [PhaseWords(each.name, epoch_range(each), _rate(each, recipe), _what_happens(each)) for each in phases]
    return [*found, PhaseWords("total", epoch_range(*phases))]


def _rate(phase: Phase, recipe: Recipe) -> str:
    training, part = recipe.training, phase.lr
    if part.held or training.schedule == "constant":
        return f"{training.lr:g}"
    if training.schedule == "cosine":
        length = part.schedule_epochs or phase.epochs
        ends = (part.schedule_start / length, (part.schedule_start + phase.epochs) / length)
        return " to ".join(f"{training.lr * cosine(end):.4g}" for end in ends) + ", cosine"
    # A phase may be the middle of a schedule; milestones before it apply from its start.
    places = [
        fraction * (part.schedule_epochs or phase.epochs) - part.schedule_start for fraction in training.milestones
    ]
    first = training.lr * training.gamma ** sum(place <= 0 for place in places)
    at = ", ".join(f"{place:g}" for place in places if 0 < place < phase.epochs)
    return f"{first:g}, x {training.gamma:g} at {at}" if at else f"{first:g}"


def _what_happens(phase: Phase) -> str:
    parts = []
    if words := _words(phase.on_enter):
        parts.append(f"first {words}")
    if phase.reset_optimizer:
        parts.append("fresh momentum")
    if words := _words(phase.on_epoch_start):
        parts.append(f"{words} at the start of every epoch")
    if phase.on_step:
        often = "in every step" if phase.on_step.every == 1 else f"every {phase.on_step.every} steps"
        parts.append(f"{_words(phase.on_step.action)} {often}")
    if phase.rules.penalty:
        parts.append("a growing penalty on the weights")
    parts += _techniques(phase)
    if phase.stop_when:
        parts.append(f"until {_words(phase.stop_when)}")
    if words := _words(phase.on_exit):
        parts.append(f"then {words}")
    return ", ".join(parts) or "plain training"


def _techniques(phase: Phase) -> list[str]:
    said = {
        "S2-SAM": phase.rules.around_gradient,
        "distilled": phase.rules.extra_loss,
        "scored by its averaged weights": phase.rules.around_scoring,
    }
    return [words for words, part in said.items() if part]


def _words(action: Callable[..., object] | None) -> str:
    """The name of a method's function, or of the one in a `partial`, as words; empty without a function."""
    return action_name(action).strip("_").replace("_", " ")
