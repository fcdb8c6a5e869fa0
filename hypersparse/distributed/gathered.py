"""`gathered_state` and `load_gathered_`: a plan's state for trainers that save the state of one rank for all."""

from typing import TYPE_CHECKING, Any

from hypersparse.distributed.checkpoint import parted, rejoined
from hypersparse.distributed.shards import is_sharded

if TYPE_CHECKING:
    from torch import Tensor

    from hypersparse.sparsifier import Sparsifier

PARTS = "whole"  # beside the plan's state: its sharded tensors, as one process would have them


def gathered_state(sparsifier: "Sparsifier") -> dict[str, Any]:
    """The plan's state with whole masks; all ranks call it and get the same."""
    saved = sparsifier.state_dict()
    if not is_sharded(sparsifier.weights):
        return saved
    tensors: dict[str, Tensor] = {}
    plan = parted(saved, tensors)
    return {**plan, PARTS: {number: tensor.full_tensor().cpu() for number, tensor in tensors.items()}}  # type: ignore[attr-defined]


def load_gathered_(sparsifier: "Sparsifier", saved: dict[str, Any]) -> None:
    """Load such a state; each rank takes its own part."""
    if is_sharded(sparsifier.weights):
        from torch.distributed.tensor import distribute_tensor

        weight: Any = next(iter(sparsifier.weights.values()))
        layout = {"device_mesh": weight.device_mesh, "placements": weight.placements, "src_data_rank": None}
        whole = saved.get(PARTS, {})
        shards = {number: distribute_tensor(tensor.to(weight.device), **layout) for number, tensor in whole.items()}
        saved = rejoined({name: part for name, part in saved.items() if name != PARTS}, shards)
    sparsifier.load_state_dict(saved)
