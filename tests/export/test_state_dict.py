"""A state_dict for plain PyTorch."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from hypersparse.export.state_dict import save_state_dict
from tests.export.networks import sparse_model


def test_plain_pytorch_loads_it(tmp_path: Path) -> None:
    model = sparse_model("resnet8", density=0.2)
    size = save_state_dict(model, tmp_path / "a.safetensors")
    assert size == (tmp_path / "a.safetensors").stat().st_size
    other = sparse_model("resnet8", density=0.2, seed=5)
    other.load_state_dict(load_file(tmp_path / "a.safetensors"))
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())
