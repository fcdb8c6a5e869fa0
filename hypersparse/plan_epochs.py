"""`begin_epoch` and `finish_epoch`: how a sparsifier goes through the epochs and phases of its plan."""

from typing import TYPE_CHECKING

from hypersparse.attach_checks import check_in_place
from hypersparse.errors import LoopError
from hypersparse.exact_zeros import reset_optimizer_
from hypersparse.loop_errors import LoopCalls, check_acted
from hypersparse.methods.base import Action

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier


def begin_epoch(sparsifier: "Sparsifier") -> bool:
    """Enter the next epoch, and its phase; False when the plan is done. An open epoch goes on."""
    if sparsifier.is_open:
        return True
    while not sparsifier.done and sparsifier.phase.epochs == 0:
        _leave_phase(sparsifier)
    if sparsifier.done:
        return False
    _join(sparsifier)
    phase, state = sparsifier.phase, sparsifier.state
    if not sparsifier.position.entered:
        _enter_phase(sparsifier)
    act(sparsifier, phase.on_epoch_start)
    if phase.on_epoch_start is not None or phase.on_step is not None:  # then the mask may be another
        sparsifier.guard.look(f"In phase {phase.name}", briefly=True)
    state.epoch_tensor.fill_(state.epoch)
    state.observed.reset()
    state.log.clear()
    sparsifier.calls = LoopCalls()
    if sparsifier.learning_rate is not None:
        sparsifier.learning_rate.set_(phase, state.epoch)
    sparsifier.position.open = True
    return True


def finish_epoch(sparsifier: "Sparsifier") -> None:
    """After the last step of an epoch: check what the loop did, and ask the method whether its phase is over."""
    if not sparsifier.is_open:
        raise LoopError("`finish_epoch()` ends what `begin_epoch()` began; no epoch is open.")
    _join(sparsifier)  # if it was loaded in the middle of this epoch
    phase, state, position, ranks = sparsifier.phase, sparsifier.state, sparsifier.position, sparsifier.ranks
    state.observed.sum_over_(ranks)
    with ranks.together():
        mode, observed = sparsifier.penalty_mode, state.observed.count
        in_loss, own_loop = mode == "loss", mode is None
        sparsifier.calls.check(sparsifier.plan, observed=observed, penalty_in_loss=in_loss, own_loop=own_loop)
        sparsifier.zeros.finish_epoch(phase)
    if sparsifier.learning_rate is not None:
        sparsifier.learning_rate.check()
    over = ranks.decide(phase.stop_when(state)) if phase.stop_when is not None else False
    position.open = False
    position.total_epoch += 1
    if over or state.epoch + 1 >= phase.epochs:
        _leave_phase(sparsifier)
    else:
        state.epoch += 1
    position.log = dict(state.log)
    if sparsifier.done and sparsifier.on_done is not None:
        sparsifier.on_done(sparsifier)


def act(sparsifier: "Sparsifier", action: Action | None) -> None:
    """Let the method act; all ranks must have the same mask then."""
    if action is not None:
        action(sparsifier.state)
        sparsifier.ranks.check_same(sparsifier.weights.mask)


def _join(sparsifier: "Sparsifier") -> None:
    """Before anything is drawn: all ranks are at the same place, and draw what rank 0 would."""
    state, position, ranks = sparsifier.state, sparsifier.position, sparsifier.ranks
    if not position.joined:
        check_in_place(sparsifier.weights)
        phase = "the end" if sparsifier.done else f"phase {sparsifier.phase.name}"
        names = ", ".join(phase.name for phase in sparsifier.plan)
        ranks.check_same_place(f"{phase} of {names}, epoch {state.epoch}, step {state.step}")
        state.generator.set_state(ranks.from_first(state.generator.get_state))
        ranks.check_same(sparsifier.weights.mask)
        position.joined = True


def _enter_phase(sparsifier: "Sparsifier") -> None:
    phase = sparsifier.phase
    if phase.reset_optimizer:
        reset_optimizer_(sparsifier.state.optimizer)
    act(sparsifier, phase.on_enter)
    sparsifier.guard.look(f"On entering phase {phase.name}")
    sparsifier.position.entered = True


def _leave_phase(sparsifier: "Sparsifier") -> None:
    phase, state, position = sparsifier.phase, sparsifier.state, sparsifier.position
    check_acted(phase, state.step)
    if position.entered and phase.on_exit is not None:
        with sparsifier.zeros.following_weights():
            act(sparsifier, phase.on_exit)
    sparsifier.guard.look(f"At the end of phase {phase.name}")
    position.phase_index += 1
    position.entered = False
    state.epoch = state.step = 0
