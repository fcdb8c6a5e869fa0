"""Ablations and collapse in the training loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse import CollapseError, PrunableWeights, models
from hypersparse.storage.weights_io import load_weights_
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.network import build_network, channels_last_
from tests.training.small import small

MACHINE = Machine(device="cpu", threads=1, on_collapse="ignore")
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost")


def run(folder: Path, name: str = "none", **tables: Any) -> dict[str, Any]:
    return train(
        small(ablation={"name": name}, **tables), 0, MACHINE, folder, phase_cache=folder.parent / "phase_cache"
    )


def test_a_narrow_network_has_about_as_many_parameters_as_the_sparse_one_keeps(tmp_path: Path) -> None:
    tables = {"model": {"width": 16, "narrow": 0.9}, "method": {"name": "dense"}}
    recipe = small(**tables)
    full = models.build("resnet8", shape=(1, 8, 8), classes=4, options={"width": 16})
    prunable = PrunableWeights(full).total
    parameters = sum(parameter.numel() for parameter in full.parameters())
    wanted = round(0.1 * prunable) + parameters - prunable
    torch.manual_seed(0)
    narrow = build_network(recipe, shape=(1, 8, 8), classes=4)
    found = sum(parameter.numel() for parameter in narrow.parameters())
    assert wanted / 1.3 < found < 1.3 * wanted
    result = run(tmp_path / "run", **tables)
    assert (result["epochs"], result["sparsity"], result["ablation"]) == ({"train": 2}, 0.0, "none")
    assert result["total"] == PrunableWeights(narrow).total
    load_weights_(build_network(recipe, shape=(1, 8, 8), classes=4), tmp_path / "run" / "final.safetensors")


@pytest.mark.parametrize("name", ["shuffle", "redraw", "positions", "rewind"])
def test_ablations_begin_with_what_the_plain_run_shares(tmp_path: Path, name: str) -> None:
    plain, changed = run(tmp_path / "plain"), run(tmp_path / name, name)
    assert plain["ablation"] == "none"
    assert changed["kept_by_layer"] == plain["kept_by_layer"]
    assert changed["epochs"] == plain["epochs"]
    assert (changed["shared_seconds"] > 0) == (name == "shuffle")  # the others also remember weights from there
    again = run(tmp_path / "again", name)
    assert again["at_end"] == changed["at_end"]
    assert again["shared_seconds"] > 0


def test_a_run_may_end_where_layers_collapse(tmp_path: Path) -> None:
    machine = Machine(device="cpu", threads=1, on_collapse="error")
    with pytest.raises(CollapseError, match="At the end of phase regularize: No weight is left in"):
        train(small(method={"sparsity": 0.999}), 0, machine, tmp_path)
    result = train(small(method={"sparsity": 0.999}), 0, MACHINE, tmp_path)  # goes on, and says what is left
    assert (result["kept"], result["effective_kept"], result["effective_sparsity"]) == (5, 0, 1.0)


def test_only_2_d_convolutions_become_channels_last() -> None:
    model = nn.Sequential(nn.Conv3d(2, 4, 3), nn.Conv2d(4, 8, 3), nn.Linear(8, 2))
    values = [parameter.detach().clone() for parameter in model.parameters()]
    channels_last_(model)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), values, strict=True))
    assert model[1].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[0].weight.is_contiguous()
