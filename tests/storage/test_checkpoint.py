import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hypersparse.errors import RunError
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.checkpoint import (
    CheckpointWriter,
    load_optimizer_state_,
    load_outline,
    load_tree,
    optimizer_state,
    save_tree,
    to_cpu,
)
from hypersparse.storage.files import has_its_digest
from hypersparse.storage.run_folder import RunFolder


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree = {"a": [1, 0.1, None, "word", {"b": torch.arange(3)}], "c": {"d": torch.tensor(2.5, dtype=torch.float64)}}
    save_tree(tmp_path / "t.safetensors", tree)
    back = load_tree(tmp_path / "t.safetensors")
    assert back["a"][:4] == [1, 0.1, None, "word"]
    assert torch.equal(back["a"][4]["b"], torch.arange(3))
    assert back["c"]["d"].dtype == torch.float64
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]
    outline = load_outline(tmp_path / "t.safetensors")
    assert outline["a"][:4] == [1, 0.1, None, "word"]
    assert isinstance(outline["c"]["d"], str)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x" * len(b)])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "t.safetensors"
    save_tree(path, {"a": torch.arange(100)})
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    for load in (load_tree, load_outline):
        with pytest.raises(RunError, match="is damaged") as caught:
            load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizer_state_of_masked_weights_is_short_and_comes_back(kind: type[torch.optim.Optimizer]) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer, PrunableWeights]:
        torch.manual_seed(0)
        model = nn.Linear(10, 10)
        extra = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        return model, kind(model.parameters(), lr=0.1, **extra), PrunableWeights(model)  # type: ignore[call-arg]

    model, optimizer, weights = build()
    weights.set_mask_(Mask.top(magnitude(weights), 7))
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    saved = to_cpu(optimizer_state(optimizer, weights, weights.mask))
    largest = max(t.numel() for t in saved["state"]["0"].values() if isinstance(t, torch.Tensor))
    assert largest == 7

    other_model, other, other_weights = build()
    assert weights.mask is not None
    other_weights.set_mask_(weights.mask)
    load_optimizer_state_(other, other_weights, weights.mask, saved)
    for name, value in optimizer.state[model.weight].items():
        back = other.state[other_model.weight][name]
        assert torch.equal(back, value * weights.mask["weight"] if value.dim() else value)


def test_loaded_moments_lie_in_memory_as_their_weights_do(tmp_path: Path) -> None:
    """A fused kernel pairs them by their places in memory; a file knows nothing of channels-last."""

    def made() -> tuple[PrunableWeights, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(4, 8, 3)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return PrunableWeights(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)

    def step(weights: PrunableWeights, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        weights.model(torch.arange(100.0).reshape(1, 4, 5, 5) / 100).square().sum().backward()
        optimizer.step()

    weights, optimizer = made()
    step(weights, optimizer)
    save_tree(tmp_path / "t.safetensors", to_cpu(optimizer_state(optimizer, weights, None)))
    again, other = made()
    again.model.load_state_dict(weights.model.state_dict())
    load_optimizer_state_(other, again, None, load_tree(tmp_path / "t.safetensors"))
    moment = other.state[again["0.weight"]]["momentum_buffer"]
    assert moment.stride() == again["0.weight"].stride() != moment.contiguous().stride()
    step(weights, optimizer)
    step(again, other)
    assert torch.equal(weights["0.weight"], again["0.weight"])


def test_the_writer_keeps_the_newest_and_says_what_went_wrong(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    writer = CheckpointWriter(path, tmp_path / "state.json", seconds=60.0)
    for number in range(50):
        writer.submit({"readable": {"number": number}, "x": torch.tensor(number)})
    writer.close()
    assert load_tree(path)["readable"]["number"] == 49

    broken = CheckpointWriter(tmp_path / "missing" / "c.safetensors", tmp_path / "state.json", seconds=0.0)
    broken.submit({"readable": {}})
    with pytest.raises(Exception, match="could not be written"):
        broken.close()


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_tree(path, {"a": torch.arange(4.0), "b": "words"})
    assert has_its_digest(path)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flip(path, bit)
        with pytest.raises(RunError, match="is damaged"):
            load_tree(path)
        path.write_bytes(whole)
    assert load_tree(path)["b"] == "words"


def test_files_of_others_have_no_digest(tmp_path: Path) -> None:
    save_file({"a": torch.arange(4.0)}, str(tmp_path / "t.safetensors"))
    assert has_its_digest(tmp_path / "t.safetensors") is None


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.safetensors")
    with pytest.raises(RunError, match="not a regular file"):
        load_tree(tmp_path / "t.safetensors")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("call", range(8))
def test_a_kill_between_any_two_operations_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    run = RunFolder(tmp_path)
    for number in range(3):
        save_tree(run.checkpoint_file, {"number": number}, previous=run.previous_file)
    left = call

    def dying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise Killed
            return operation(*given, **named)

        return instead

    for name in ("replace", "unlink", "open", "exists"):
        monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
    with contextlib.suppress(Killed):
        save_tree(run.checkpoint_file, {"number": 3}, previous=run.previous_file)
    monkeypatch.undo()
    path = run.whole_checkpoint()
    assert path is not None
    assert load_tree(path)["number"] in (2, 3)
    assert left < 0 or (load_tree(run.checkpoint_file)["number"], load_tree(run.previous_file)["number"]) == (3, 2)
