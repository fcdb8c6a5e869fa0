import os
import pickle
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import prune

from hypersparse import models
from hypersparse.errors import ModelError
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.files import write_tensors
from hypersparse.storage.weights_io import load_weights_, read_weights, save_weights
from hypersparse.training.network import channels_last_


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return models.build("resnet8", shape=(1, 8, 8), classes=10, options={"width": 8})


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("keep", [None, 100])
def test_a_network_comes_back_bit_for_bit(tmp_path: Path, keep: int | None, channels_last: bool) -> None:
    model = network()
    if channels_last:  # as a captured step has it
        channels_last_(model)
    weights = PrunableWeights(model)
    if keep:
        weights.set_mask_(Mask.top(magnitude(weights), keep))
    size = save_weights(tmp_path / "n.safetensors", weights, {"recipe": "x"})
    other = network(1)
    assert load_weights_(other, tmp_path / "n.safetensors").metadata == {"recipe": "x"}
    assert same(weights.model, other)
    dense = sum(tensor.nbytes for tensor in other.state_dict().values())
    assert size < dense / 3 if keep else size >= dense


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"state_dict": s}, lambda s: {f"module.{k}": v for k, v in s.items()}]
)
def test_a_state_dict_saved_by_torch_is_read(tmp_path: Path, wrap: object) -> None:
    model = network()
    torch.save(wrap(model.state_dict()), tmp_path / "n.pt")  # type: ignore[operator]
    other = network(1)
    load_weights_(other, tmp_path / "n.pt")
    assert same(model, other)


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/hypersparse-was-here",)


def test_a_hostile_pickle_is_refused_without_running_it(tmp_path: Path) -> None:
    marker = Path("/tmp/hypersparse-was-here")
    torch.save({"weight": Hostile()}, tmp_path / "h.pt")
    torch.save({"state_dict": {}, "optimizer": Hostile()}, tmp_path / "best.pth.tar")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Hostile()))
    for name in ("h.pt", "raw.pt", "best.pth.tar"):
        with pytest.raises(ModelError, match="weights-only"):
            read_weights(tmp_path / name, network())
    assert not marker.exists()


def test_a_compressed_state_dict_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    """PyTorch expands it: 2 MB became 4 GB."""
    torch.save({"weight": torch.zeros(2**20)}, tmp_path / "stored.pt")
    with ZipFile(tmp_path / "stored.pt") as stored, ZipFile(tmp_path / "small.pt", "w", ZIP_DEFLATED) as small:
        for member in stored.namelist():
            small.writestr(member, stored.read(member))
    assert read_weights(tmp_path / "stored.pt", nn.Linear(1, 1)).tensors["weight"].numel() == 2**20
    with pytest.raises(ModelError, match="would expand to 4"):
        read_weights(tmp_path / "small.pt", nn.Linear(1, 1))


def test_tensors_without_numbers_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1, 1, device="meta"), "bias": torch.zeros(1)}, tmp_path / "meta.pt")
    with pytest.raises(ModelError, match="should hold a state_dict"):
        load_weights_(nn.Linear(1, 1), tmp_path / "meta.pt")


def test_weights_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    save_weights(path, PrunableWeights(network()), {})
    wider = models.build("resnet8", shape=(1, 8, 8), classes=10, options={"width": 16})
    with pytest.raises(ModelError, match="do not fit ResNet") as caught:
        load_weights_(wider, path)
    assert "\n" not in str(caught.value)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        load_weights_(network(), path)
    with pytest.raises(ModelError, match="There are no weights at"):
        load_weights_(network(), tmp_path / "nothing")


def test_a_mask_without_its_weights_is_one_sentence(tmp_path: Path) -> None:
    path, weights = tmp_path / "n.safetensors", PrunableWeights(network())
    weights.set_mask_(Mask.top(magnitude(weights), 100))
    save_weights(path, weights, {})
    altered = {name.replace("kept/linear.", "kept/lineas."): tensor for name, tensor in load_file(path).items()}
    write_tensors(path, altered, {})
    with pytest.raises(ModelError, match=r"the mask of layer `linear\.weight` but not its weights"):
        load_weights_(network(), path)


@pytest.mark.parametrize("content", [b"", b"hello world" * 20])
def test_a_state_dict_that_is_none_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "n.pt").write_bytes(content)
    with pytest.raises(ModelError, match=r"n\.pt is not a state_dict .*: it is damaged or a file of another kind"):
        load_weights_(network(), tmp_path / "n.pt")


def test_a_flipped_bit_of_stored_weights_is_said(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    save_weights(path, PrunableWeights(network(0)), {})
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"n.safetensors is damaged: its content does not match its SHA-256"):
        load_weights_(network(1), path)


def test_names_of_a_state_dict_are_texts(tmp_path: Path) -> None:
    torch.save({0: torch.zeros(2)}, tmp_path / "n.pt")
    with pytest.raises(ModelError, match="should hold a state_dict: tensors by their names"):
        load_weights_(network(1), tmp_path / "n.pt")


class Authors(nn.Module):
    """The same network under the names of other code: an `fc` at the end, as the HyperSparse authors have it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        for name, child in network.named_children():
            self.add_module({"linear": "fc"}.get(name, name), child)


@pytest.mark.parametrize("change", [None, "order", "shape", "kind", "count"])
def test_a_checkpoint_of_the_authors_fills_the_same_network(change: str | None, tmp_path: Path) -> None:
    model = network()
    names = dict(Authors(model).state_dict())
    if change == "order":
        names = {name: names[name] for name in sorted(names, key=lambda name: name != "fc.bias")}
    elif change == "shape":
        names["fc.weight"] = names["fc.weight"][:5]
    elif change == "kind":
        names = {name.replace("fc.bias", "fc.offset"): tensor for name, tensor in names.items()}
    elif change == "count":
        del names["fc.bias"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint = {"epoch": 3, "state_dict": names, "acc": 91.2, "optimizer": optimizer.state_dict()}
    torch.save(checkpoint, tmp_path / "best.pth.tar")
    other = network(1)
    if change is None:
        load_weights_(other, tmp_path / "best.pth.tar")
        assert same(model, other)
        return
    with pytest.raises(ModelError, match="do not fit ResNet: "):
        load_weights_(other, tmp_path / "best.pth.tar")


def test_a_name_that_both_have_elsewhere_is_not_filled_by_place(tmp_path: Path) -> None:
    made, other = (nn.ModuleDict({name: nn.Linear(2, 2) for name in pair}) for pair in (("a", "b"), ("b", "c")))
    torch.save(made.state_dict(), tmp_path / "n.pt")
    with pytest.raises(ModelError, match="do not fit ModuleDict"):
        load_weights_(other, tmp_path / "n.pt")


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict", "net"])
def test_a_checkpoint_of_torch_prune_is_read(wrapper: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Linear(12, 3))
    prune.l1_unstructured(model[0], "weight", amount=0.75)
    torch.save({wrapper: model.state_dict(), "epoch": 1}, tmp_path / "n.pt")
    other = nn.Sequential(nn.Linear(6, 12), nn.Linear(12, 3))
    load_weights_(other, tmp_path / "n.pt")
    prune.remove(model[0], "weight")
    assert torch.equal(other[0].weight, model[0].weight)
    assert Mask.from_zeros(other).kept_by_layer() == {"0.weight": 18, "1.weight": 36}
    assert not torch.signbit(other[0].weight[other[0].weight == 0]).any()


def test_a_mask_of_another_shape_in_a_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    torch.save({"weight_orig": torch.ones(2, 2), "weight_mask": torch.ones(3)}, tmp_path / "n.pt")
    with pytest.raises(ModelError, match=r"`weight_mask` has the shape \(3,\); `weight_orig` \(2, 2\)"):
        load_weights_(nn.Linear(2, 2), tmp_path / "n.pt")
