"""Masks: exact counts, algebra, and files that come back as they were."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.sparsity.mask import Mask, kth_largest

few_values = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=40)


def two_layers() -> dict[str, Tensor]:
    return {"a": torch.tensor([[5.0, 1.0], [4.0, 0.0]]), "b": torch.tensor([3.0, 2.0])}


def mask_of(**layers: list[int]) -> Mask:
    return Mask({name: torch.tensor(layer, dtype=torch.bool) for name, layer in layers.items()})


# Selection


def test_top_keeps_the_largest_over_all_layers() -> None:
    mask = Mask.top(two_layers(), 3)
    assert mask["a"].tolist() == [[True, False], [True, False]]
    assert mask["b"].tolist() == [True, False]
    assert (mask.kept, mask.total, mask.kept_by_layer()) == (3, 6, {"a": 2, "b": 1})
    assert (mask.sparsity, mask.density) == (0.5, 0.5)


def test_of_equal_scores_the_first_stay() -> None:
    assert Mask.top({"a": torch.tensor([1.0, 2.0, 1.0, 1.0])}, 3)["a"].tolist() == [True, True, True, False]


@given(scores=few_values, data=st.data())
def test_top_keeps_exactly_as_many_as_asked_under_ties(scores: list[float], data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, len(scores)))
    cut = data.draw(st.integers(1, len(scores) - 1))
    layers = {"a": torch.tensor(scores[:cut]), "b": torch.tensor(scores[cut:])}
    chosen = Mask.top(layers, keep).vector()
    flat = torch.tensor(scores)
    assert chosen.sum() == keep
    if keep < len(scores):
        assert flat[chosen].min() >= flat[~chosen].max()


@given(scores=few_values, data=st.data())
def test_strictly_above_drops_the_last_one_and_its_equals(scores: list[float], data: st.DataObject) -> None:
    keep = data.draw(st.integers(2, len(scores)))
    flat = torch.tensor(scores)
    threshold = sorted(scores)[len(scores) - keep]  # the authors' rule: entry floor(kappa D) in ascending order
    mask = Mask.strictly_above({"a": flat}, keep)
    assert mask["a"].tolist() == [score > threshold for score in scores]
    assert mask.kept <= keep - 1


def test_strictly_above_keeps_one_fewer_where_nothing_is_equal() -> None:
    assert Mask.strictly_above({"a": torch.randperm(90).float()}, 27).kept == 26  # D - floor(kappa D) - 1


@pytest.mark.parametrize("keep", [0, -1, 7])
def test_a_count_that_cannot_be_kept_is_an_error(keep: int) -> None:
    with pytest.raises(OptionError, match=rf"`keep` is a count from 1 to 6; got {keep}\."):
        Mask.top(two_layers(), keep)
    with pytest.raises(OptionError, match="from 2 to 6"):
        Mask.strictly_above(two_layers(), keep)


def test_strictly_above_never_leaves_nothing_by_count() -> None:
    with pytest.raises(OptionError, match="from 2 to 6; got 1"):
        Mask.strictly_above(two_layers(), 1)


@pytest.mark.parametrize("rule", [Mask.top, Mask.strictly_above])
def test_scores_that_are_not_numbers_are_an_error(rule: type[Mask]) -> None:
    with pytest.raises(OptionError, match="not a number"):
        rule({"a": torch.tensor([1.0, torch.nan, 2.0])}, 2)  # type: ignore[call-arg]


def test_infinite_scores_are_simply_the_largest() -> None:
    assert Mask.top({"a": torch.tensor([torch.inf, 1.0, -torch.inf])}, 2)["a"].tolist() == [True, True, False]


@given(values=few_values)
def test_kth_largest_agrees_with_sorting(values: list[float]) -> None:
    descending = sorted(values, reverse=True)
    vector = torch.tensor(values)
    assert [kth_largest(vector, k).item() for k in range(1, len(values) + 1)] == descending


def test_top_by_layer_keeps_each_layers_budget() -> None:
    mask = Mask.top_by_layer({"a": torch.arange(6.0), "b": torch.ones(4), "c": torch.ones(3)}, {"a": 2, "b": 3, "c": 0})
    assert mask.kept_by_layer() == {"a": 2, "b": 3, "c": 0}
    assert mask["a"].tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("budget", [{"a": 1}, {"a": 1, "b": 1, "c": 1}])
def test_a_budget_must_name_the_layers(budget: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="budget names the layers"):
        Mask.top_by_layer(two_layers(), budget)


@pytest.mark.parametrize("keep", [-1, 5])
def test_a_budget_must_fit_its_layer(keep: int) -> None:
    with pytest.raises(OptionError, match=f"from 0 to 4; got {keep}"):
        Mask.top_by_layer({"a": torch.ones(2), "b": torch.ones(4)}, {"a": 1, "b": keep})


# Being a value


def test_algebra() -> None:
    left, right = mask_of(a=[1, 1, 0, 0], b=[1]), mask_of(a=[1, 0, 1, 0], b=[0])
    assert left & right == mask_of(a=[1, 0, 0, 0], b=[0])
    assert left | right == mask_of(a=[1, 1, 1, 0], b=[1])
    assert left ^ right == mask_of(a=[0, 1, 1, 0], b=[1])
    assert left - right == mask_of(a=[0, 1, 0, 0], b=[1])
    assert ~left == mask_of(a=[0, 0, 1, 1], b=[0])
    assert left.intersection(right) == pytest.approx(1 / 3)
    assert right.intersection(left) == 1 / 2


def test_equality_needs_the_same_layers_in_the_same_order() -> None:
    assert mask_of(a=[1], b=[1]) != mask_of(b=[1], a=[1])
    assert mask_of(a=[1]) != mask_of(a=[0])
    assert mask_of(a=[1]) != "a mask"


@pytest.mark.parametrize("other", [{"a": [1, 0]}, {"b": [1, 0, 1]}])
def test_masks_of_other_layers_do_not_combine(other: dict[str, list[int]]) -> None:
    with pytest.raises(OptionError, match="same layers"):
        mask_of(a=[1, 0, 1]) & mask_of(**other)


def test_a_mask_is_a_mapping_that_cannot_be_changed_or_hashed() -> None:
    mask = mask_of(a=[1, 0], b=[1])
    assert (list(mask), len(mask), "a" in mask) == (["a", "b"], 2, True)
    assert repr(mask) == "Mask(2 of 3 kept, sparsity 0.3333, 2 layers)"
    with pytest.raises(TypeError):
        mask["a"] = torch.ones(2)  # type: ignore[index]
    with pytest.raises(TypeError):
        hash(mask)


def test_all_kept_and_its_vector() -> None:
    mask = Mask.all_kept(two_layers())
    assert (mask.kept, mask.sparsity) == (6, 0.0)
    assert mask["a"].shape == (2, 2)
    assert Mask.from_vector(mask.vector(), two_layers()) == mask


@pytest.mark.parametrize(
    ("layers", "says"),
    [({"a": torch.ones(2)}, "booleans; layer `a` is torch.float32"), ({}, "at least one layer")],
)
def test_what_is_no_mask_is_an_error(layers: dict[str, Tensor], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Mask(layers)


def test_the_memory_order_of_weights_does_not_matter() -> None:
    scores = torch.randn(4, 3, 2, 2)
    plain = Mask.top({"a": scores}, 11)
    last = Mask.top({"a": scores.to(memory_format=torch.channels_last)}, 11)
    assert plain == last
    assert Mask.unpack(last.pack(), {"a": scores.shape}) == plain


# Models


def test_apply_to_zeroes_what_is_dropped_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-3.0, torch.nan]]))
    bias = model[0].bias.clone()
    Mask({"0.weight": torch.tensor([[True, False]])}).apply_to_(model)
    assert model[0].weight.tolist() == [[-3.0, 0.0]]
    assert torch.equal(model[0].bias, bias)
    assert model[1].weight.count_nonzero() == 1


def test_apply_to_reaches_through_torch_compile() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    Mask({"0.weight": torch.tensor([[False, False]])}).apply_to_(torch.compile(model, backend="eager"))
    assert model[0].weight.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("second", [{"9.weight": torch.ones(1, 1).bool()}, {"1.weight": torch.ones(3, 3).bool()}])
def test_apply_to_a_foreign_model_changes_nothing(second: dict[str, Tensor]) -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    before = model[0].weight.clone()
    with pytest.raises(ModelError, match=r"a layer `\d.weight` of shape .* that the model has not"):
        Mask({"0.weight": torch.zeros(1, 2, dtype=torch.bool), **second}).apply_to_(model)
    assert torch.equal(model[0].weight, before)


# Files


@settings(max_examples=30)
@given(bits=st.lists(st.booleans(), min_size=1, max_size=67), one=st.booleans())
def test_packing_comes_back(bits: list[bool], one: bool) -> None:
    mask = Mask({"long": torch.tensor(bits), "scalar": torch.tensor([[one]])})
    assert Mask.unpack(mask.pack(), {"long": (len(bits),), "scalar": (1, 1)}) == mask


def test_a_saved_mask_comes_back_and_leaves_no_other_file(tmp_path: Path) -> None:
    mask = Mask.top({"z": torch.randn(7, 5), "a": torch.randn(3)}, 9)
    mask.save(tmp_path / "mask.safetensors")
    assert Mask.load(tmp_path / "mask.safetensors") == mask  # the order of layers too
    assert [file.name for file in tmp_path.iterdir()] == ["mask.safetensors"]


def test_a_mask_is_about_a_bit_a_weight(tmp_path: Path) -> None:
    Mask.top({"a": torch.randn(100_000)}, 50_000).save(tmp_path / "mask")
    assert (tmp_path / "mask").stat().st_size < 100_000 / 8 + 400


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no mask file"):
        Mask.load(tmp_path / "nothing")


def test_a_folder_is_not_a_mask(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a mask file"):
        Mask.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a mask at all, only text", b"\xff" * 64])
def test_other_bytes_are_not_a_mask(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mask").write_bytes(content)
    with pytest.raises(RunError, match="is not a mask file"):
        Mask.load(tmp_path / "mask")


@pytest.mark.parametrize("size", [10, 60, -3])
def test_a_cut_file_is_not_a_mask(tmp_path: Path, size: int) -> None:
    path = tmp_path / "mask"
    mask_of(a=[1, 0, 1] * 30).save(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(RunError, match="is not a mask file"):
        Mask.load(path)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"other": "key"},
        {"hypersparse_mask": "no json"},
        {"hypersparse_mask": "[1, 2]"},
        {"hypersparse_mask": json.dumps({"missing": [3]})},
        {"hypersparse_mask": json.dumps({"a": [1_000_000]})},
        {"hypersparse_mask": json.dumps({"a": "text"})},
        {"hypersparse_mask": json.dumps({"a": [-4]})},
        {"hypersparse_mask": "{}"},
    ],
)
def test_somebody_elses_safetensors_file_is_not_a_mask(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "weights"
    save_file({"a": mask_of(a=[1, 0, 1]).pack()["a"]}, str(path), metadata=metadata)
    with pytest.raises(RunError, match="is not a mask file"):
        Mask.load(path)


def test_a_small_file_claims_no_huge_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of zeros, deflated, would be a mask of 8 GB."""
    Mask({"a": torch.zeros(2**20, dtype=torch.bool)}).save(tmp_path / "m.safetensors")
    assert Mask.load(tmp_path / "m.safetensors").total == 2**20
    monkeypatch.setattr("hypersparse.sparsity.mask.FEW_WEIGHTS", 2**10)
    with pytest.raises(RunError, match="claims 1048576 weights"):
        Mask.load(tmp_path / "m.safetensors")


def test_bytes_that_cannot_be_unpacked_are_an_error() -> None:
    with pytest.raises(ModelError, match=r"does not fit layer `a` of shape \(3,\)"):
        Mask.unpack({"a": torch.full((9,), 200, dtype=torch.uint8)}, {"a": (3,)})


def test_a_place_where_no_mask_can_be_written_is_one_sentence(tmp_path: Path) -> None:
    mask = Mask({"a": torch.tensor([True, False])})
    for place in (tmp_path / "nowhere" / "m", tmp_path):  # a folder that is not there, and one that is
        with pytest.raises(RunError, match="The mask could not be written to"):
            mask.save(place)
    assert not list(tmp_path.iterdir())
