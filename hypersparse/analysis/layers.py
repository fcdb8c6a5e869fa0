"""Weights kept in each layer of a run."""

from dataclasses import dataclass

from hypersparse.runs.run_listing import current_result
from hypersparse.storage.run_folder import RunFolder


@dataclass(frozen=True)
class LayerWeights:
    """One prunable layer: its name, the weights it keeps, and its size (None if unknown)."""

    name: str
    kept: int
    total: int | None


def layer_weights(run: RunFolder) -> list[LayerWeights]:
    """The layers from input to output; for an unfinished run, what its method would keep now, if known."""
    if result := current_result(run):
        totals = result["total_by_layer"]
        return [LayerWeights(_short(name), kept, totals[name]) for name, kept in result["kept_by_layer"].items()]
    said = [entry["kept_by_layer"] for entry in run.log() if "kept_by_layer" in entry]
    return [
        LayerWeights(f"layer {number}", kept, None) for number, kept in enumerate(said[-1] if said else [], start=1)
    ]


def _short(name: str) -> str:
    return name.removesuffix(".weight")
