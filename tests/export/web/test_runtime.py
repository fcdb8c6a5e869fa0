"""The runtime for browsers, in Node: the same outputs as elsewhere, and a sentence for what is no network."""

import json
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hypersparse.export.sparse_file import deployed_int8, load_graph, save_graph
from hypersparse.export.web.package import write_package
from hypersparse.zoo.find_network import in_zoo
from hypersparse_runtime import Graph, Node, SparseModel
from hypersparse_runtime.container import FileError, container, sections_of
from hypersparse_runtime.file import pack
from hypersparse_runtime.graph import INPUT, GraphError
from hypersparse_runtime.limits import check_sizes, estimate
from hypersparse_runtime.operations import OPERATIONS
from hypersparse_runtime.sparse_model import id_count
from tests.export.web.node import NEEDS_NODE, NODE, run_in_node
from tests.fuzz.runtime_graphs import runtime_graph
from tests.modern_architectures import ARCHITECTURES
from tests.runtime.test_modern_architectures import inputs, traced

pytestmark = [NEEDS_NODE, pytest.mark.slow]
CONV = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
SECONDS = 20.0  # on a busy machine


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("npm"))


def small(**options: object) -> Graph:
    """A convolution with a stride, a linear layer and a softmax."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((6, 3, 3, 3)).astype(np.float32) * (random.random((6, 3, 3, 3)) < 0.3)
    nodes = (
        Node("conv", (INPUT,), "v1", {"weight": "conv.weight"}, {**CONV, **options}),
        Node("relu", ("v1",), "v2"),
        Node("flatten", ("v2",), "v3"),
        Node("linear", ("v3",), "v4", {"weight": "head.weight"}),
        Node("softmax", ("v4",), "v5"),
    )
    head = random.standard_normal((4, 54)).astype(np.float32)
    return Graph((3, 5, 6), nodes, {"conv.weight": weight, "head.weight": head}, {"classes": list("abcd")})


@pytest.mark.parametrize("name", ["cifar10-resnet32-0.99", "cifar10-vgg19-0.998", "digits-resnet8-0.98"])
def test_networks_of_the_zoo_give_the_native_outputs(name: str, package: Path) -> None:
    path = in_zoo(name)
    assert path is not None
    model = SparseModel.load(path, threads=1, engine="hypersparse")
    images = np.random.default_rng(0).standard_normal((3, *model.input_shape)).astype(np.float32)
    (answer,) = run_in_node(package, [(path, images)])
    np.testing.assert_allclose(answer["outputs"], model(images).ravel(), atol=1e-4, rtol=0)
    assert answer["outputShape"] == [10]
    assert answer["denseProducts"] == model.dense_products
    weights = [model.graph.array(node, "weight") for node in model.graph.nodes if node.weighted]
    assert [layer["kept"] for layer in answer["layers"]] == [np.count_nonzero(weight) for weight in weights]


def test_every_architecture_gives_the_native_outputs(package: Path, tmp_path: Path) -> None:
    cases, expected = [], []
    for name in ARCHITECTURES:
        file, images = tmp_path / f"{len(cases)}.hsp", inputs(name).numpy().astype(np.float32)
        file.write_bytes(pack(traced(name)))
        cases.append((file, images))
        expected.append(SparseModel(traced(name), threads=1, engine="hypersparse")(images).ravel())
    for name, answer, outputs in zip(ARCHITECTURES, run_in_node(package, cases), expected, strict=True):
        scale = np.abs(outputs).max()
        np.testing.assert_allclose(answer["outputs"], outputs, atol=1e-5 * scale, rtol=0, err_msg=name)


def test_token_numbers_beyond_the_table_are_refused(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "bert.hsp"
    file.write_bytes(pack(traced("BERT")))
    answers = run_in_node(package, [(file, np.array([0, first, *range(8)])) for first in (50, -1, 0.5)])
    assert {answer["sentence"] for answer in answers} == {
        "The network takes token numbers, whole numbers from 0 to 49."
    }


def test_int8_weights_give_the_native_outputs(package: Path, tmp_path: Path) -> None:
    path = in_zoo("digits-resnet8-0.95")
    assert path is not None
    save_graph(deployed_int8(load_graph(path)), tmp_path / "int8.hsp")
    model = SparseModel.load(tmp_path / "int8.hsp", threads=1, engine="hypersparse")
    images = np.random.default_rng(0).standard_normal((3, *model.input_shape)).astype(np.float32)
    (answer,) = run_in_node(package, [(tmp_path / "int8.hsp", images)])
    np.testing.assert_allclose(answer["outputs"], model(images).ravel(), atol=1e-4, rtol=0)


def test_random_networks_give_the_outputs_of_numpy(package: Path, tmp_path: Path) -> None:
    cases, expected = [], []
    for seed in [seed for seed in range(1, 80) if _is_quick(seed)]:
        graph = runtime_graph(seed)
        file = tmp_path / f"{seed}.hsp"
        file.write_bytes(pack(graph))
        random, words = np.random.default_rng(seed), id_count(graph)
        images = random.standard_normal((2, *graph.input_shape)).astype(np.float32)
        images = images if words is None else random.integers(0, words, images.shape).astype(np.float32)
        cases.append((file, images))
        expected.append(SparseModel(graph, engine="numpy")(images).ravel())
    assert len(cases) > 40
    for (file, _), answer, outputs in zip(cases, run_in_node(package, cases), expected, strict=True):
        assert "error" not in answer, answer
        scale = max(1.0, float(np.abs(outputs).max()))
        np.testing.assert_allclose(answer["outputs"], outputs, atol=1e-4 * scale, rtol=1e-4, err_msg=file.name)


def _is_quick(seed: int) -> bool:
    """Whether a network is small, and accepted by the Python package."""
    graph = runtime_graph(seed)
    try:
        check_sizes(graph)
        return estimate(graph).products < 4e5
    except (FileError, GraphError):
        return False


def test_damaged_files_get_one_sentence(package: Path, tmp_path: Path) -> None:
    content = pack(small())
    cases, random = [], Random(0)
    for number in range(60):
        damaged = bytearray(content)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        cut = random.randrange(len(damaged)) if number % 3 == 0 else len(damaged)
        cases.append((tmp_path / f"{number}.hsp", bytes(damaged[:cut])))
    cases += [(tmp_path / f"other-{number}", other) for number, other in enumerate((b"", b"\x89PNG", b"\xff" * 100))]
    _check_refusals(package, [case for case in cases if case[1] != content])


def test_crafted_files_get_one_sentence(package: Path, tmp_path: Path) -> None:
    """Whole files with a right digest, whose graph says what no graph should."""
    sections, _ = sections_of(pack(small()))
    graph = json.loads(zlib.decompress(sections["graph"]))
    values = (None, True, "", "constructor", "__proto__", -1, 0, 0.5, 2**31, 2**53, 1e308, [], {}, [[]], [2**40, 2])
    random, cases = Random(0), []
    for number in range(150):
        text = json.loads(json.dumps(graph))
        _change(text, random.choice(values), random)
        if text == graph:
            continue
        made = container({**sections, "graph": zlib.compress(json.dumps(text).encode())}, "{}")
        cases.append((tmp_path / f"{number}.hsp", made))
    bomb = {**sections, "values": zlib.compress(bytes(10**8), 9)}
    cases.append((tmp_path / "bomb.hsp", container(bomb, "{}")))
    _check_refusals(package, cases, least=0.8)


def _change(text: object, value: object, random: Random) -> None:
    """Put a value in place of one somewhere inside."""
    while True:
        places = list(text) if isinstance(text, dict) else list(range(len(text)))  # type: ignore[arg-type,call-overload]
        if not places:
            return
        place = random.choice(places)
        if not isinstance(text[place], dict | list) or random.random() < 0.2:  # type: ignore[index]
            text[place] = value  # type: ignore[index]
            return
        text = text[place]  # type: ignore[index]


def _check_refusals(package: Path, cases: list[tuple[Path, bytes]], *, least: float = 1.0) -> None:
    """Each is an error of ours with one line, or, for some, a network that runs."""
    for file, content in cases:
        file.write_bytes(content)
    answers = run_in_node(package, [(file, None) for file, _ in cases])
    refused = [answer for answer in answers if "error" in answer]
    assert len(refused) >= least * len(cases)
    for answer in refused:
        assert answer["error"] in ("FileError", "NetworkError"), answer
        assert "\n" not in answer["sentence"]
    assert max(answer["milliseconds"] for answer in answers) < 1000 * SECONDS


def test_an_operation_that_is_missing_is_named(package: Path, tmp_path: Path) -> None:
    silu = {"arguments": [{"input": 0}], "keywords": {}, "shape": (3, 5, 6)}
    graph = Graph((3, 5, 6), (Node("aten.silu.default", (INPUT,), "v1", {}, silu),), {})
    file = tmp_path / "silu.hsp"
    file.write_bytes(pack(graph))
    (answer,) = run_in_node(package, [(file, None)])
    assert "`aten.silu.default` (`v1`) does not run in a browser" in answer["sentence"]


def test_an_option_that_is_not_known_is_refused(package: Path, tmp_path: Path) -> None:
    graph = small()
    relu = replace(graph.nodes[1], options={"slope": 0.1})
    file = tmp_path / "leaky.hsp"
    file.write_bytes(pack(replace(graph, nodes=(graph.nodes[0], relu, *graph.nodes[2:]))))
    (answer,) = run_in_node(package, [(file, None)])
    assert answer["sentence"] == "`v2` (relu) has an option that this runtime does not know: slope."


def test_it_has_every_operation_of_the_python_runtime(package: Path) -> None:
    script = f"""import {{ OPERATIONS }} from "{package}/dist/operations.js";
        console.log(JSON.stringify(Object.keys(OPERATIONS)));"""
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(json.loads(done.stdout)) == set(OPERATIONS)


def test_wrong_images_get_one_sentence(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.hsp"
    file.write_bytes(pack(small()))
    (answer,) = run_in_node(package, [(file, np.zeros(7))])
    assert answer["sentence"] == "The network takes 1 to 4096 images of 3 x 5 x 6 numbers; got 7 numbers."
