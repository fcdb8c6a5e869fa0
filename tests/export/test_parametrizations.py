"""Parametrized weights become plain ones in every export."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from hypersparse import load_sparse, save_sparse
from hypersparse.export.parametrizations import with_parametrizations_folded

MODELS = {
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 3)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 3)),
    "old weight norm": lambda: weight_norm(nn.Linear(4, 3)),
    "old spectral norm": lambda: spectral_norm(nn.Linear(4, 3)),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*spectral_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize("name", MODELS)
def test_files_hold_the_weight_itself(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(MODELS[name](), nn.ReLU()).eval()
    inputs, before = torch.randn(5, 4), sorted(model.state_dict())
    wanted = model(inputs).detach()
    save_sparse(model, tmp_path / "a.hsp", input_shape=(4,))
    network = load_sparse(tmp_path / "a.hsp")
    assert sorted(network.state_dict()) == ["0.bias", "0.weight"]
    assert torch.allclose(network(inputs), wanted, atol=1e-6)
    assert sorted(model.state_dict()) == before
    assert torch.equal(model(inputs).detach(), wanted)


def test_a_plain_model_stays_the_same_object() -> None:
    model = nn.Linear(2, 2)
    assert with_parametrizations_folded(model) is model
