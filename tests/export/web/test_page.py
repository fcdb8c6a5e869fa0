"""Pages of one file: what is in them, what is refused, and the kernel they hold."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from hypersparse.errors import ModelError
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.web.modules import bundle, smaller
from hypersparse.export.web.package import write_package
from hypersparse.export.web.page import make_page, read_page, save_page, title_of
from hypersparse.zoo.find_network import in_zoo
from hypersparse_runtime import Graph, Node
from hypersparse_runtime.compile_wasm import (
    WASM,
    build_wasm,
    compiler_version,
    find_tools,
    source_digest,
    stored_origin,
)
from hypersparse_runtime.graph import INPUT
from tests.export.web.node import NODE
from tests.serve.made import linear

MOST_KERNEL, MOST_PAGE = 60_000, 200_000  # bytes
AGAIN = "run `python -m hypersparse_runtime.compile_wasm` and commit kernel.wasm"


def zoo_graph(name: str) -> Graph:
    path = in_zoo(name)
    assert path is not None
    return load_graph(path)


def test_the_kernel_was_built_from_this_source() -> None:
    assert stored_origin(WASM.read_bytes())[0] == source_digest(), AGAIN
    assert len(WASM.read_bytes()) <= MOST_KERNEL


@pytest.mark.slow
@pytest.mark.skipif(find_tools() is None, reason="needs clang and wasm-ld: apt-get install clang lld")
def test_the_kernel_is_what_its_source_builds_to() -> None:
    tools = find_tools()
    assert tools is not None
    built = build_wasm()
    assert stored_origin(built)[0] == source_digest()
    if compiler_version(tools[0]) == stored_origin(WASM.read_bytes())[1]:  # another clang makes other code
        assert built == WASM.read_bytes(), AGAIN


def test_a_page_holds_its_network_and_little_else(tmp_path: Path) -> None:
    graph = zoo_graph("cifar10-resnet32-0.99")
    path = tmp_path / "demo.html"
    size = save_page(graph, path)
    assert size == path.stat().st_size < MOST_PAGE
    again = read_page(path)
    assert again.nodes == graph.nodes
    assert all(np.array_equal(again.tensors[name], array) for name, array in graph.tensors.items())
    text = path.read_text()
    assert "resnet32 on cifar10" in text
    assert not re.search(r'(?:src|href)="(?!data:|#main")', text)


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else() -> None:
    text = make_page(zoo_graph("digits-resnet8-0.98"), "</script><b>")
    assert "<b>" not in text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    packed = re.search(r'id="packed">([A-Za-z0-9+/=]+)<', text)
    assert policy
    assert packed
    allowed = dict(part.split(" ", 1) for part in policy[1].split("; "))
    assert allowed["default-src"] == "'none'"
    assert "connect-src" not in allowed
    script = zlib.decompress(base64.b64decode(packed[1]))
    unpacker = text[text.rindex("<script>") + 8 : text.rindex("</script>")].encode()
    hashes = [base64.b64encode(hashlib.sha256(part).digest()).decode() for part in (unpacker, script)]
    assert allowed["script-src"] == f"'sha256-{hashes[0]}' 'sha256-{hashes[1]}' 'wasm-unsafe-eval'"


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (linear((2, 4, 4)), "images of 1 or 3 channels"),
        (linear((3, 4, 4), 1), "tells apart"),
        (
            Graph((3, 4, 4), (Node("aten.silu.default", (INPUT,), "v1", {}, {"shape": (3, 4, 4)}),), {}),
            "`aten.silu.default`",
        ),
    ],
)
def test_what_a_page_cannot_show_is_refused(graph: Graph, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=reason):
        save_page(graph, tmp_path / "demo.html")
    assert not list(tmp_path.iterdir())


def test_a_file_without_a_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo.html").write_text("<p>nothing</p>")
    with pytest.raises(ModelError, match="holds no network"):
        read_page(tmp_path / "demo.html")


def test_titles() -> None:
    assert title_of({}) is None
    assert title_of({"recipe": "not TOML ["}) is None
    assert title_of({"recipe": "model = 1"}) is None


def test_the_bundle_is_one_scope_for_each_module() -> None:
    text = bundle()
    assert "import " not in re.sub(r"`[^`]*`|\"[^\"]*\"", "", text)
    assert text.rstrip().endswith("const { SparseModel } = $model;")
    assert smaller('const a = "http://b"; // words\n  b();\n') == 'const a = "http://b";\nb();\n'


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: apt-get install npm")
def test_the_package_can_be_packed_and_imported(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    done = subprocess.run(
        ["npm", "pack", "--json", "--offline", "--pack-destination", str(tmp_path)],
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (about,) = json.loads(done.stdout)
    assert about["name"] == "hypersparse-web"
    files = {file["path"] for file in about["files"]}
    assert {"package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/kernel.js"} <= files
    (tmp_path / "user" / "node_modules" / "hypersparse-web").mkdir(parents=True)
    target = tmp_path / "user" / "node_modules" / "hypersparse-web"
    subprocess.run(
        ["tar", "xf", str(tmp_path / about["filename"]), "--strip-components=1", "-C", str(target)],
        check=True,
        timeout=60,
    )
    script = 'import * as all from "hypersparse-web"; console.log(Object.keys(all).sort().join());'
    (tmp_path / "user" / "try.mjs").write_text(script)
    said = subprocess.run(
        [str(NODE), "try.mjs"], cwd=tmp_path / "user", capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "FileError,NetworkError,SparseModel"
