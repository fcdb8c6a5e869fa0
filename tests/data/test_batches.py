"""Batches: every image once an epoch, exact resume, clean order and every error."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hypersparse.data.batches import Batches, in_order
from hypersparse.errors import DataError, OptionError

Pairs = list[tuple[Tensor, Tensor]]


def make(
    count: int = 11, *, seed: int = 0, padding: int = 2, flip: bool = True, device: str = "cpu", **more: Any
) -> Batches:
    images = (torch.arange(count * 2 * 4 * 5) % 251).to(torch.uint8).reshape(count, 2, 4, 5)
    settings = {"batch_size": 3, "mean": [0.4, 0.5], "std": [0.2, 0.3], **more}
    return Batches(
        images.to(device),
        torch.arange(count, device=device),
        seed=seed,
        padding=padding,
        flip=flip,
        **settings,
    )


def labels_of(pairs: Pairs) -> list[int]:
    return [int(label) for _, labels in pairs for label in labels]


def same(first: Pairs, second: Pairs) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) for left, right in zip(first, second, strict=True) for a, b in zip(left, right, strict=True)
    )


def take(batches: Batches, count: int) -> Pairs:
    """The next `count` batches, over as many epochs as that needs, stopping inside the last one."""
    taken: Pairs = []
    while len(taken) < count:
        for pair in batches:
            taken.append(pair)
            if len(taken) == count:
                break
    return taken


def test_each_epoch_has_full_batches_in_a_new_order() -> None:
    batches = make()
    assert len(batches) == 3
    first, second = list(batches), list(batches)
    assert [images.shape for images, _ in first] == [(3, 2, 4, 5)] * 3
    assert len(set(labels_of(first))) == 9
    assert labels_of(first) != labels_of(second)


def test_last_batch_can_be_kept() -> None:
    batches = make(drop_last=False)
    assert len(batches) == 4
    assert [len(labels) for _, labels in batches] == [3, 3, 3, 2]
    assert sorted(labels_of(list(batches))) == list(range(11))
    assert len(make(count=9, drop_last=False)) == 3


def test_seed_decides_order_and_augmentation() -> None:
    assert same(list(make(seed=1)), list(make(seed=1)))
    assert labels_of(list(make(seed=1))) != labels_of(list(make(seed=2)))


def test_order_does_not_depend_on_augmentation() -> None:
    plain, augmented = make(padding=0, flip=False), make()
    assert [labels_of(list(plain)) for _ in range(3)] == [labels_of(list(augmented)) for _ in range(3)]


def test_without_augmentation_images_are_only_normalised() -> None:
    batches = make(padding=0, flip=False)
    (clean, _), *_ = batches.in_order(11)
    for images, labels in batches:
        assert torch.equal(images, clean[labels])


def test_images_are_cropped_flipped_and_padded_with_black() -> None:
    batches = make(count=100, batch_size=100)
    ((images, labels),) = batches
    (clean, _), *_ = batches.in_order(100)
    assert not torch.equal(images, clean[labels])
    black = -torch.tensor([0.4, 0.5]) / torch.tensor([0.2, 0.3])
    torch.testing.assert_close(images.amin(dim=(0, 2, 3)), black)


def test_position_counts_the_batches_taken() -> None:
    batches = make()
    assert [batches.position for _ in batches] == [1, 2, 3]
    assert batches.position == 0


def test_an_interrupted_epoch_resumes() -> None:
    batches = make()
    taken = take(batches, 2)
    assert same(taken + list(batches), list(make()))


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(3, 12),
    before=st.integers(0, 14),
    after=st.integers(1, 9),
    drop_last=st.booleans(),
    seed=st.integers(0, 99),
)
def test_resume_is_exact_between_any_two_batches(
    count: int, before: int, after: int, drop_last: bool, seed: int
) -> None:
    unbroken = make(count, seed=seed, drop_last=drop_last)
    expected = take(unbroken, before + after)
    stopped = make(count, seed=seed, drop_last=drop_last)
    take(stopped, before)
    resumed = make(count, seed=seed + 1, drop_last=drop_last)  # the state alone decides
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.position == stopped.position
    assert same(take(resumed, after), expected[before:])
    assert same(take(stopped, after), expected[before:])


def test_resume_after_the_last_batch_finishes_the_epoch_and_begins_the_next() -> None:
    stopped, unbroken = make(), make()
    take(stopped, 3)
    resumed = make()
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.position == 3
    assert list(resumed) == []
    list(unbroken)
    assert same(list(resumed), list(unbroken))


def test_state_is_small_and_does_not_change_afterwards() -> None:
    batches = make(count=10_000)
    take(batches, 2)
    state = batches.state_dict()
    kept = {name: torch.as_tensor(value).clone() for name, value in state.items()}
    list(batches)
    take(batches, 1)
    assert all(torch.equal(torch.as_tensor(state[name]), kept[name]) for name in kept)
    assert {name: type(value) for name, value in state.items()} == {
        "position": int,
        "order": Tensor,
        "augmentation": Tensor,
    }
    assert all(state[name].dtype == torch.uint8 and state[name].numel() < 6000 for name in ("order", "augmentation"))


def test_loading_a_state_rewinds_the_current_epoch() -> None:
    batches = make()
    start = batches.state_dict()
    iterator = iter(batches)
    first = next(iterator)
    batches.load_state_dict(start)
    assert same([first], [next(iterator)])


def test_iterating_in_order_does_not_affect_the_epoch() -> None:
    batches, undisturbed = make(), make()
    pairs = []
    for pair in batches:
        pairs.append(pair)
        assert labels_of(list(batches.in_order(4))) == list(range(11))
    assert same(pairs, list(undisturbed))


def test_in_order_returns_every_image_once_normalised() -> None:
    images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8)
    pairs = list(in_order(images, torch.arange(7), torch.tensor([0.5]), torch.tensor([0.25]), batch_size=3))
    assert [len(labels) for _, labels in pairs] == [3, 3, 1]
    assert labels_of(pairs) == list(range(7))
    torch.testing.assert_close(torch.cat([part for part, _ in pairs]), (images / 255 - 0.5) / 0.25)


def test_float_features_can_be_batched() -> None:
    values = torch.rand(6, 4)
    batches = Batches(values, torch.arange(6), batch_size=6, mean=[0.0], std=[1.0], seed=0)
    ((features, labels),) = batches
    assert torch.equal(features, values[labels])


def test_too_few_images_for_one_batch_is_an_error_with_advice() -> None:
    with pytest.raises(
        OptionError, match=r"11 images do not fill one batch of 64: make `batch_size` at most 11.*drop_last=False"
    ):
        make(batch_size=64)
    assert [len(labels) for _, labels in make(batch_size=64, drop_last=False)] == [11]


def test_features_cannot_be_flipped() -> None:
    with pytest.raises(OptionError, match=r"Only images .* got \[5\]"):
        Batches(torch.rand(4, 5), torch.arange(4), flip=True, batch_size=2, mean=[0.5], std=[0.5], seed=0)


def test_a_state_of_another_device_is_refused() -> None:
    state = make().state_dict() | {"order": torch.zeros(16, dtype=torch.uint8)}
    with pytest.raises(DataError, match="another kind of device than cpu"):
        make().load_state_dict(state)


@pytest.mark.gpu
@pytest.mark.parametrize("before", range(7))
def test_resume_is_exact_on_a_gpu(before: int) -> None:
    expected = take(make(device="cuda"), before + 4)
    stopped, resumed = make(device="cuda"), make(device="cuda")
    take(stopped, before)
    resumed.load_state_dict(stopped.state_dict())
    assert same(take(resumed, 4), expected[before:])
