"""Where a plan stands, and how that is saved and loaded."""

from dataclasses import astuple, dataclass, field
from math import isclose
from typing import TYPE_CHECKING, Any

from hypersparse.errors import OptionError
from hypersparse.loop_errors import LoopCalls
from hypersparse.sparsity.mask import Mask

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier

STATE = frozenset(  # what every saved state has
    {"plan", "cache_keys", "sparsity", "phase_index", "epoch", "step", "total_epoch", "entered", "open", "calls", "lrs"}
    | {"steps_per_epoch", "generator", "observed", "memory", "log", "last_log", "mask"}
)


@dataclass
class Position:
    """Where a plan stands, beyond what the method sees of it."""

    phase_index: int = 0
    total_epoch: int = 0  # epochs finished, over all phases
    entered: bool = False  # the phase has begun
    open: bool = False  # an epoch of it has, and is not finished
    joined: bool = False  # the ranks draw the same, since the first epoch of this process
    log: dict[str, Any] = field(default_factory=dict)  # of the last finished epoch


def saved_state(sparsifier: "Sparsifier") -> dict[str, Any]:
    """All that a sparsifier has to save."""
    state, position, mask = sparsifier.state, sparsifier.position, sparsifier.mask
    return {
        "plan": [phase.name for phase in sparsifier.plan],
        "cache_keys": [phase.cache_key for phase in sparsifier.plan],
        "sparsity": sparsifier.sparsity,
        "phase_index": position.phase_index,
        "epoch": state.epoch,
        "step": state.step,
        "total_epoch": position.total_epoch,
        "entered": position.entered,
        "open": position.open,
        "calls": list(astuple(sparsifier.calls)),
        "steps_per_epoch": state.steps_per_epoch,
        "lrs": sparsifier.learning_rate.state_dict() if sparsifier.learning_rate else None,
        "generator": state.generator.get_state(),
        "observed": {"total": state.observed.total.clone(), "count": state.observed.count},
        "memory": state.memory.state_dict(),
        "log": dict(state.log),
        "last_log": dict(position.log),
        "mask": None if mask is None else dict(mask) if mask.is_sharded else mask.pack(),
    }


def load_(sparsifier: "Sparsifier", saved: dict[str, Any]) -> None:
    """Put a sparsifier where a saved one was."""
    _check(sparsifier, saved)
    state, weights = sparsifier.state, sparsifier.weights
    state.epoch, state.step = saved["epoch"], saved["step"]
    sparsifier.position = Position(
        phase_index=saved["phase_index"],
        total_epoch=saved["total_epoch"],
        entered=saved["entered"],
        open=saved["open"],
        joined=sparsifier.position.joined,
        log=dict(saved["last_log"]),
    )
    sparsifier.calls = LoopCalls(*saved["calls"])
    if sparsifier.learning_rate is not None and saved["lrs"] is not None:
        sparsifier.learning_rate.load_state_dict(saved["lrs"])
    state.generator.set_state(saved["generator"].cpu())
    state.observed.total.copy_(saved["observed"]["total"])
    state.observed.count = saved["observed"]["count"]
    state.memory.load_state_dict(saved["memory"])
    state.log = dict(saved["log"])
    state.epoch_tensor.fill_(state.epoch)
    if saved["mask"] is None:
        weights.clear_mask_()
    elif weights.shard_group is not None:
        weights.set_mask_(Mask(saved["mask"]))
    else:
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        weights.set_mask_(Mask.unpack(saved["mask"], shapes))
    sparsifier.guard.accept()


def _check(sparsifier: "Sparsifier", saved: dict[str, Any]) -> None:
    """Raise an error for a state of something else, before anything is loaded."""
    if missing := STATE - saved.keys():
        raise OptionError(f"What `sparsifier.state_dict()` gave is wanted; this state has no `{min(missing)}`.")
    known = [phase.name for phase in sparsifier.plan]
    if saved["plan"][: len(known)] != known[: len(saved["plan"])]:
        raise OptionError(f"The saved plan is {saved['plan']}; this one is {known}.")
    before, now = saved["steps_per_epoch"], sparsifier.state.steps_per_epoch
    if before != now and (saved["open"] or None not in (before, now)):  # between epochs the loop may begin to count
        raise OptionError(
            f"The state was saved with `steps_per_epoch={before}`, and this plan has {now}; attach with {before}."
        )
    _check_sparsity(sparsifier, saved)


def _check_sparsity(sparsifier: "Sparsifier", saved: dict[str, Any]) -> None:
    """A state at another sparsity is taken only as far as its phases are the same at both, such as pre-training."""
    before, now = saved["sparsity"], sparsifier.sparsity
    if before is None or now is None or isclose(before, now, abs_tol=1e-6):
        return
    begun = zip(sparsifier.plan, saved["cache_keys"][: saved["phase_index"] + saved["entered"]], strict=False)
    for phase, cache_key in begun:
        if not phase.pretraining and (cache_key is None or cache_key != phase.cache_key):
            raise OptionError(
                f"The state was saved at sparsity {before!r}, and phase {phase.name} is not the same at "
                f"{now!r}. Attach with {before!r} to go on with it."
            )
