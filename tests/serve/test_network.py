"""A served network says what its file says, beside a dense twin that says the same."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hypersparse.data import digits
from hypersparse.errors import ModelError
from hypersparse.serve import network as module
from hypersparse.serve.images import pixels_of
from hypersparse.serve.network import CALLS, LEAST_CALLS, Served, describe, timed_in_turns
from hypersparse_runtime import SparseModel
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.serve.made import DIGITS, STROKES, drawing, linear, served


@pytest.fixture(scope="module")
def network() -> Served:
    return served()


def test_about_counts_what_is_in_the_file(network: Served) -> None:
    about = network.about()
    assert (about["name"], about["bytes"], about["input"]) == ("digits.hsp", DIGITS.stat().st_size, [1, 8, 8])
    assert (about["kept"], about["total"], about["classes"]) == (3854, 77_072, 10)
    assert about["layers"][0] == {"name": "conv1", "shape": [16, 1, 3, 3], "kept": 126, "total": 144}
    assert about["layers"][-1] == {"name": "linear", "shape": [10, 64], "kept": 320, "total": 640}
    assert about["dense_bytes"] > 4 * about["total"]
    sparse = about["engine"] == "hypersparse, 1 thread"  # at 13 % of the products a trial may choose the other one
    assert about["products"] == (101_944 if sparse else about["dense_products"])
    assert about["dense_products"] == 763_520
    assert about["notes"] == []
    assert about["draws"]
    assert about["digits"]


def test_test_images_get_the_outputs_of_the_runtime(network: Served) -> None:
    model, data = SparseModel.load(DIGITS, threads=1), digits.load()
    right = 0
    for image, label in zip(data.test.images[:40].numpy(), data.test.labels[:40].tolist(), strict=True):
        answer = network.compare(image)
        inputs = (image / np.float32(255) - np.float32(data.mean[0])) / np.float32(data.std[0])
        outputs = model(inputs[None].astype(np.float32))[0].astype(np.float64)
        shares = np.exp(outputs) / np.exp(outputs).sum()
        best = [str(place) for place in np.argsort(-shares)[:5]]
        assert [one["class"] for one in answer["top"]] == best
        assert answer["top"][0]["share"] == pytest.approx(shares.max(), abs=1e-5)
        assert answer["sparse"]["class"] == answer["dense"]["class"] == best[0]
        assert answer["difference"] < 1e-4
        assert LEAST_CALLS <= answer["calls"] <= CALLS
        assert min(answer["sparse"]["milliseconds"], answer["dense"]["milliseconds"]) > 0
        right += best[0] == str(label)
    assert right >= 38


@pytest.mark.parametrize("digit", STROKES)
@pytest.mark.parametrize(
    "options", [{}, {"pen": 8}, {"pen": 30}, {"size": 0.5, "pen": 12}, {"paper": "#222", "ink": "#eee"}]
)
def test_drawn_digits_are_told(network: Served, digit: int, options: dict[str, object]) -> None:
    answer = network.compare(pixels_of(drawing(digit, **options), network.shape, drawn=True))  # type: ignore[arg-type]
    assert answer["sparse"]["class"] == str(digit)
    seen = Image.open(io.BytesIO(base64.b64decode(answer["seen"].partition(",")[2])))
    assert (seen.mode, seen.size) == ("L", (8, 8))


def test_normalisation_by_hand() -> None:
    graph = linear((3, 1, 2), normalisation={"scale": 255, "mean": [0.0, 0.2, 0.4], "std": [1.0, 0.5, 0.25]})
    pixels = np.array([[[255, 0]], [[51, 51]], [[102, 153]]], np.uint8)
    answer = Served("a", graph, 1).compare(pixels)
    total = 1 + 0 + 0 + 0 + 0 + 0.8  # (pixel / 255 - mean) / std, summed; the other output is 0
    assert answer["sparse"]["share"] == pytest.approx(1 / (1 + np.exp(-total)), abs=1e-5)
    for op in ("softmax", "log_softmax"):  # shares are shown as they are
        ending = replace(graph, nodes=(*graph.nodes, Node(op, (graph.output,), "shares")))
        assert Served("a", ending, 1).compare(pixels)["sparse"]["share"] == pytest.approx(answer["sparse"]["share"])


@pytest.mark.parametrize(
    ("about", "notes", "scale"),
    [
        ({}, ["name its classes", "how images are normalised"], 255.0),
        ({"classes": ["a"]}, ["name its classes", "how images are normalised"], 255.0),
        ({"classes": ["a", "b"], "normalisation": {"scale": 0, "mean": [0], "std": [1]}}, ["normalised"], 255.0),
        ({"classes": ["a", "b"], "normalisation": {"scale": 1, "mean": "x", "std": [1]}}, ["normalised"], 255.0),
        ({"classes": ["a", "b"], "normalisation": {"scale": 255, "mean": [0], "std": [0]}}, ["normalised"], 255.0),
        ({"classes": ["a", "b"], "normalisation": {"scale": 1, "mean": [0], "std": [2]}}, ["are no pixels"], 255.0),
        ({"classes": ["a", "b"], "normalisation": {"scale": 255, "mean": [0], "std": [2]}}, [], 255.0),
    ],
)
def test_what_a_file_does_not_say_is_noted(about: dict[str, object], notes: list[str], scale: float) -> None:
    labels = describe(about, (1, 4, 4), 2)
    assert len(labels.notes) == len(notes)
    assert all(words in note for words, note in zip(notes, labels.notes, strict=True))
    assert labels.normalisation.scale == scale
    assert len(labels.classes) == 2


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (linear((4, 2, 2)), r"1 or 3 channels; a takes the shape \(4, 2, 2\)"),
        (linear((7,)), r"takes the shape \(7,\)"),
        (linear((1, 2, 2), outputs=1), r"tells classes apart; a gives outputs of the shape \(1,\)"),
        (
            Graph((1, 2, 2), (Node("aten.tanh.default", (INPUT,), "y", {}, {"shape": (2,)}),), {}),
            "only PyTorch can run it",
        ),
    ],
)
def test_networks_that_cannot_be_tried_are_refused(graph: Graph, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        Served("a", graph, 1)


def test_without_onnx_runtime_pytorch_is_the_dense_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_installed", lambda _package: False)
    network = served()
    assert network.about()["dense_engine"].startswith("PyTorch, ")
    answer = network.compare(digits.load().test.images[0].numpy())
    assert answer["difference"] < 1e-4
    assert answer["sparse"]["class"] == answer["dense"]["class"]


def test_outputs_that_are_no_numbers_are_said() -> None:
    graph = linear((1, 2, 2))
    graph.tensors["head.weight"][0, 0] = np.inf
    with pytest.raises(ModelError, match="not all finite"):
        Served("a", graph, 1).compare(np.full((1, 2, 2), 255, np.uint8))


def test_calls_take_turns_and_stop_in_time() -> None:
    calls: list[int] = []
    _, _, count = timed_in_turns(lambda: calls.append(1), lambda: calls.append(2), seconds=10)
    assert count == CALLS
    assert calls == [1, 2] * (CALLS + 1)
    assert timed_in_turns(lambda: None, lambda: None, seconds=0)[2] == LEAST_CALLS
