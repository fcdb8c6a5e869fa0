"""`with_techniques`: adds techniques to the phases of a method's plan."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Protocol

from torch import nn

from hypersparse.errors import OptionError
from hypersparse.methods.base import Action, Phase, TrainingState, Within, action_name
from hypersparse.techniques.averaging import Averaging
from hypersparse.techniques.distillation import Distilling
from hypersparse.techniques.options import Phases, Techniques
from hypersparse.techniques.perturbation import Perturbing
from hypersparse.techniques.reparametrization import Factoring

NEEDS_PRETRAINING = (
    "The run's own teacher is the average of its dense pre-training, and this plan has none. Pass a `teacher`, or "
    "choose a method with pre-training such as ART."
)
TECHNIQUES = (Averaging, Distilling, Factoring, Perturbing)


class _Technique(Protocol):
    def begin(self, state: TrainingState) -> None: ...
    def end(self, state: TrainingState) -> None: ...


def with_techniques(
    plan: Sequence[Phase], techniques: Techniques, *, trained: bool = False, teacher: nn.Module | None = None
) -> list[Phase]:
    """The plan with the techniques added; each call serves one training.

    The network of a `trained` run is its own teacher if none is given.
    """
    if techniques == Techniques():
        return list(plan)
    phases = list(plan)
    last = len(phases) - 1
    for index, phase in enumerate(phases):
        follows = None if index == last else plan[index + 1]
        for where, added in (
            (techniques.reparametrize_phases, _factored),
            (techniques.sam_phases, _perturbed),
            (techniques.ema_phases, _averaged),  # last: it sees the weights after all others
        ):
            if _acts(where, index, last):
                phase = added(phase, techniques, follows)
        phases[index] = phase
    return _distilled(phases, techniques, trained=trained, teacher=teacher) if techniques.distill else phases


def _acts(where: Phases, index: int, last: int) -> bool:
    return where == "all" or index == last


def _factored(phase: Phase, techniques: Techniques, follows: Phase | None) -> Phase:
    """The phase with factored weights."""
    if not techniques.reparametrize:
        return phase
    if phase.rules.around_step is not None:
        raise OptionError(
            f"`reparametrize` factors the weights around the optimizer's step, and the phase {phase.name} of this "
            "method changes them there itself; leave it out."
        )
    factoring = Factoring(techniques.reparametrize, techniques.reparametrize_balance)
    return replace(
        _framed(phase, factoring, techniques, "reparametrize"),
        on_epoch_start=_both(phase.on_epoch_start, factoring.at_epoch_start),
        rules=replace(phase.rules, around_step=factoring.around_step),
    )


def _perturbed(phase: Phase, techniques: Techniques, follows: Phase | None) -> Phase:
    """The phase with perturbed gradients."""
    if not techniques.sam:
        return phase
    perturbing = Perturbing(techniques.sam)
    rules = replace(phase.rules, around_gradient=perturbing.around_gradient)
    return replace(_framed(phase, perturbing, techniques, "sam"), rules=rules)


def _averaged(phase: Phase, techniques: Techniques, follows: Phase | None) -> Phase:
    """The phase with averaged weights, which are scored. They become the weights if the next phase does not continue
    training.
    """
    if not techniques.ema:
        return phase
    averaging = Averaging(techniques.ema, techniques.ema_images)
    stop_when = phase.stop_when

    def stop_as_averaged(state: TrainingState) -> bool:
        assert stop_when is not None
        with averaging.in_place(state):
            return stop_when(state)

    if stop_when is not None:
        stop_as_averaged.__name__ = action_name(stop_when)
    framed = _framed(phase, averaging, techniques, "ema")
    adopts = follows is None or follows.reset_optimizer
    return replace(
        framed,
        on_exit=_both(averaging.adopt, framed.on_exit) if adopts else framed.on_exit,
        rules=replace(
            phase.rules,
            around_step=_around(averaging.around_step, phase.rules.around_step),
            around_scoring=_around(averaging.in_place, phase.rules.around_scoring),
        ),
        stop_when=None if stop_when is None else stop_as_averaged,
    )


def _distilled(
    plan: Sequence[Phase], techniques: Techniques, *, trained: bool, teacher: nn.Module | None
) -> list[Phase]:
    """The plan with a teacher, given or from the pre-training, in its later phases."""
    distilling = Distilling.of(
        factor=techniques.distill,
        temperature=techniques.distill_temperature,
        kind=techniques.distill_divergence,
        decay=techniques.teacher_decay,
        given=teacher,
    )
    own = teacher is None and not techniques.given_teacher
    if own and not trained and not any(phase.pretraining for phase in plan):
        raise OptionError(NEEDS_PRETRAINING)
    phases, last = [], len(plan) - 1
    for index, phase in enumerate(plan):
        if own and phase.pretraining:
            phase = _making_teacher(phase, distilling, techniques)
        elif not phase.pretraining and _acts(techniques.distill_phases, index, last):
            rules = replace(phase.rules, extra_loss=distilling.loss_of)
            phase = replace(phase, rules=rules, cache_key=_key(phase, techniques, "distill"))
        if own and trained and index == 0:
            phase = replace(phase, on_enter=_both(distilling.keep_network, phase.on_enter))
        if own and index == last:
            phase = replace(phase, on_exit=_both(phase.on_exit, distilling.end))
        phases.append(phase)
    return phases


def _making_teacher(phase: Phase, distilling: Distilling, techniques: Techniques) -> Phase:
    averaging = distilling.averaging
    return replace(
        phase,
        on_enter=_both(averaging.begin, phase.on_enter),
        on_exit=_both(distilling.keep_average, phase.on_exit),
        rules=replace(phase.rules, around_step=_around(averaging.around_step, phase.rules.around_step)),
        cache_key=_key(phase, techniques, "teacher_decay"),
    )


def _framed(phase: Phase, technique: _Technique, techniques: Techniques, name: str) -> Phase:
    """The phase with a technique that starts after the method's entry and ends after its exit."""
    return replace(
        phase,
        on_enter=_both(phase.on_enter, technique.begin),
        on_exit=_both(phase.on_exit, technique.end),
        cache_key=_key(phase, techniques, name),
    )


def _key(phase: Phase, techniques: Techniques, name: str) -> str | None:
    """The options that determine the phase: all whose names begin with the technique's."""
    values = {field.name: getattr(techniques, field.name) for field in fields(techniques)}
    said = sorted((key, value) for key, value in values.items() if key.startswith(name))
    said += [("teacher", techniques.teacher_digest)] if name == "distill" else []
    return phase.cache_key and f"{phase.cache_key}; {said!r}"


def _both(first: Action | None, second: Action | None) -> Action:
    """Both actions, one after the other; a printed plan shows the name of the method's own."""
    actions = [action for action in (first, second) if action is not None]

    def act(state: TrainingState) -> None:
        for action in actions:
            action(state)

    named = [action_name(action) for action in actions if not isinstance(getattr(action, "__self__", None), TECHNIQUES)]
    act.__name__ = "_and_".join(filter(None, named))
    return act


def _around(outer: Within, inner: Within | None) -> Within:
    """A context inside another one."""
    if inner is None:
        return outer

    @contextmanager
    def around(state: TrainingState) -> Any:
        with outer(state), inner(state):
            yield

    return around
