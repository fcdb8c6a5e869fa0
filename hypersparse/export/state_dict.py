"""A network's dense tensors by name in a safetensors file, for plain PyTorch."""

from pathlib import Path

from torch import Tensor, nn

from hypersparse.storage.files import write_tensors


def save_state_dict(model: nn.Module, path: str | Path) -> int:
    """Write the state_dict for `safetensors.torch.load_file` and `load_state_dict`; returns its size in bytes."""
    state = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    write_tensors(Path(path), {name: tensor.detach().cpu().clone() for name, tensor in state.items()}, {"format": "pt"})
    return Path(path).stat().st_size
