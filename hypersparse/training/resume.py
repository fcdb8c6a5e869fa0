"""What a folder holds of a run: its result, or the state for a bit-identical resume."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from hypersparse.data.batches import ShuffledBatches
from hypersparse.distributed import average_statistics_
from hypersparse.errors import HypersparseError, RunError
from hypersparse.recipe import Recipe
from hypersparse.storage.checkpoint import load_optimizer_state_, load_outline, load_tree, optimizer_state, to_cpu
from hypersparse.storage.files import writing
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Checkpoint, Outline, PhaseEnd, Position, Result, checked
from hypersparse.storage.weights_io import compact, expand, packed_mask

if TYPE_CHECKING:
    from hypersparse.training.loop import Training

SEEDS_APART = 1_000_003  # of the random numbers of two ranks
RESTART = "Delete the run's checkpoints to restart it."
log = logging.getLogger("hypersparse")


def outcome_in(run: RunFolder, recipe: Recipe, seed: int) -> tuple[str | None, Result | None]:
    """The phase after which a recipe ends in a folder, and the result of a finished run."""
    run.check(recipe, seed)
    result = run.result()
    if result is not None and is_complete(recipe, result["until"]):
        return recipe.until, result
    return unless_past(recipe, run).until, None


def is_complete(recipe: Recipe, ended_after: str | None) -> bool:
    """Whether a run that ended after this phase has reached the end of the recipe."""
    names = [phase.name for phase in replace(recipe, until=None).plan()]
    if ended_after not in (None, *names):
        raise RunError(
            f"A result of {recipe.label} ends with `{ended_after}`, which is no phase of it; delete its result.json "
            "and run again to rebuild it."
        )
    asked, there = (names.index(name) if name else len(names) for name in (recipe.until, ended_after))
    return there >= asked


def unless_past(recipe: Recipe, run: RunFolder) -> Recipe:
    """The recipe, without its `until` if the run has started a later phase."""
    there = saved_position(run) if recipe.until else None
    past = there and there["entered"] and there["phase_index"] >= len(recipe.plan())
    return replace(recipe, until=None) if past else recipe


def saved_position(run: RunFolder) -> Position | None:
    """The position from which a run resumes, as in `Sparsifier.state_dict`; None without a checkpoint."""
    path = run.whole_checkpoint()
    return checked(load_outline(path), Outline, path, RESTART)["sparsifier"] if path else None


def take_checkpoint(run: RunFolder) -> Checkpoint | None:
    """The newest checkpoint that is not damaged; a damaged one is reported and replaced by it."""
    path = run.whole_checkpoint()
    if path is None:
        return None
    if path != run.checkpoint_file:
        if run.checkpoint_file.exists():
            log.warning("The checkpoint %s is damaged; the one before it is used.", run.checkpoint_file)
        with writing(run.checkpoint_file):
            path.replace(run.checkpoint_file)  # or the next checkpoint would be written over it
    return checked(load_tree(run.checkpoint_file), Checkpoint, run.checkpoint_file, RESTART)


def state_of(training: "Training") -> dict[str, Any]:
    """Everything a process needs for a bit-identical resume; all ranks must call it."""
    sparsifier, scoring, ranks = training.sparsifier, training.images.scoring, training.ranks
    average_statistics_(training.model, ranks)
    planned, record = sparsifier.state_dict(), training.epoch_loss.state_dict()
    if sparsifier.is_open:  # at an epoch's end each rank has the sums already
        planned["observed"], record = ranks.sum_mean(planned["observed"]), ranks.sum_mean(record)
    optimizer = sparsifier.state.optimizer
    elapsed = time.monotonic() - training.began if sparsifier.is_open else 0.0
    cuda = torch.cuda.is_available() and sparsifier.weights.device.type == "cuda"
    readable = {
        "phase": sparsifier.phase.name,
        "epochs_finished": sparsifier.total_epoch,
        "steps_of_this_epoch": training.batches.position,
        "seconds_of_this_epoch": training.epoch_seconds + elapsed,
    }
    return {
        "readable": readable,
        "model": compact(sparsifier.weights),
        "optimizer": to_cpu(optimizer_state(optimizer, sparsifier.weights, sparsifier.trainable)),
        "sparsifier": to_cpu(planned) | {"mask": None},  # the mask is in the model's part
        "batches": training.batches.state_dict(),
        "scoring_images": scoring.state_dict() if isinstance(scoring, ShuffledBatches) else None,
        "record": to_cpu(record),
        "scoring": dict(training.flop_counter.scoring),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state() if cuda else None,
    }


def resume_(training: "Training") -> None:
    """Resume from the checkpoint in the folder, if there is one."""
    ranks = training.ranks
    state = ranks.from_first(lambda: _found(training))
    if state is not None:
        with ranks.together(), _fitting(training.run):
            _restore_(training, state)
        training.entries = ranks.from_first(lambda: training.run.cut_log(training.sparsifier.total_epoch))
        training.epoch_seconds = state["readable"]["seconds_of_this_epoch"]
    if not ranks.first:  # sums count on rank 0 only, and random numbers differ by rank
        training.epoch_loss.loss.reset()
        training.sparsifier.state.observed.reset()
        torch.manual_seed(training.seed + ranks.rank * SEEDS_APART + training.sparsifier.total_epoch)


def _found(training: "Training") -> Checkpoint | PhaseEnd | None:
    """The checkpoint in the folder, or the end of a phase that another run has trained."""
    state = take_checkpoint(training.run)
    if state is not None:
        return state
    training.run.cut_log(0)
    phase_end = training.phase_cache.load(training.sparsifier.plan) if training.phase_cache else None
    if phase_end is None:
        return None
    for entry in phase_end["entries"]:
        entry["shared"] = True
        training.run.append_log(entry)
    for number, epoch in enumerate(phase_end["history"]):
        training.run.history.write(number, epoch)
    return phase_end


@contextmanager
def _fitting(run: RunFolder) -> Iterator[None]:
    """Raise a `RunError` if the saved state does not fit the recipe."""
    try:
        yield
    except HypersparseError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"What is saved of {run.path} does not fit its recipe ({reason}). {RESTART}") from error


def _restore_(training: "Training", state: Checkpoint) -> None:
    """Restore the network, the optimizer, the plan and all random generators."""
    sparsifier = training.sparsifier
    shapes = {name: tuple(tensor.shape) for name, tensor in training.model.state_dict().items()}
    training.model.load_state_dict(expand(state["model"], shapes))
    sparsifier.load_state_dict({**state["sparsifier"], "mask": packed_mask(state["model"])})
    optimizer = sparsifier.state.optimizer
    load_optimizer_state_(optimizer, sparsifier.weights, sparsifier.trainable, state["optimizer"])
    training.batches.load_state_dict(state["batches"])
    if isinstance(training.images.scoring, ShuffledBatches) and state["scoring_images"] is not None:
        training.images.scoring.load_state_dict(state["scoring_images"])
    training.epoch_loss.load_state_dict(state["record"])
    training.flop_counter.scoring |= state["scoring"]
    torch.set_rng_state(state["random"])
    if state["random_cuda"] is not None:
        torch.cuda.set_rng_state(state["random_cuda"])
