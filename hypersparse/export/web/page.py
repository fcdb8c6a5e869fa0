"""`save_page`: a network as one HTML file that runs in any browser."""

import base64
import html
import re
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypersparse import __version__
from hypersparse.errors import ModelError
from hypersparse.export.sparse_file import file_bytes
from hypersparse.export.web.modules import bundle, smaller
from hypersparse.pages.template import asset, fill, script_of, source_hash, to_json
from hypersparse.storage.files import write_text
from hypersparse_runtime.file import unpack
from hypersparse_runtime.graph import Graph, GraphError, shapes

SHARED_SCRIPTS = ("elements", "theme", "numbers", "pad", "samples", "verdict", "picker")
SCRIPTS = ("pixels", "predictor", "demo")
NETWORK = re.compile(r'"network":"([A-Za-z0-9+/=]+)"')


def save_page(graph: Graph, path: str | Path) -> int:
    """Write a graph made by `exact` or `deployed` as a page; returns its size in bytes."""
    path = Path(path)
    check_graph(graph)
    text = make_page(graph, title_of(graph.about) or path.stem)
    write_text(path, text)
    return len(text.encode())


def make_page(graph: Graph, title: str) -> str:
    """The HTML of a page with a network, its runtime and all assets."""
    style = smaller(asset("base.css") + asset("demo.css"))
    shared = (asset(f"{name}.js") for name in SHARED_SCRIPTS)
    script = script_of(bundle(), smaller("\n".join([*shared, *(asset(f"{name}.js", __package__) for name in SCRIPTS)])))
    unpacker = smaller(asset("unpack.js", __package__))
    network = base64.b64encode(file_bytes(graph)).decode()
    policy = (
        f"default-src 'none'; script-src {source_hash(unpacker)} {source_hash(script)} 'wasm-unsafe-eval'; "
        f"style-src {source_hash(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    packed = base64.b64encode(zlib.compress(script.encode(), 9)).decode()
    return fill(
        asset("demo.html"),
        {
            "POLICY": f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
            "TITLE": html.escape(f"{title}: hypersparse"),
            "STYLE": style,
            "DATA": to_json({"title": title, "version": __version__, "network": network}),
            "PACKED": f'<script type="text/plain" id="packed">{packed}</script>\n',
            "SCRIPT": unpacker,
        },
    )


def read_page(path: str | Path) -> Graph:
    """The network in a page written by `save_page`."""
    found = NETWORK.search(Path(path).read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise ModelError(f"{path} holds no network; export it again.")
    return unpack(base64.b64decode(found[1]))


def check_graph(graph: Graph) -> None:
    """Raise ModelError for a network that the page cannot run or show."""
    strange = next((node.op for node in graph.nodes if node.opaque), None)
    if strange is not None:
        raise ModelError(
            f"The runtime for browsers has no operation `{strange}`; export this network as .hsp or .onnx."
        )
    try:
        outputs = shapes(graph)[graph.output]
    except GraphError as error:
        raise ModelError(f"The network cannot be written as a page: {error}") from None
    if len(graph.input_shape) != 3 or graph.input_shape[0] not in (1, 3):
        raise ModelError(f"A page shows images of 1 or 3 channels to a network; this one takes {graph.input_shape}.")
    if len(outputs) != 1 or outputs[0] < 2:
        raise ModelError(f"A page shows the classes that a network tells apart; this one gives outputs of {outputs}.")


def title_of(about: Mapping[str, Any]) -> str | None:
    """The title: the model and data set in a file.

    >>> title_of({"recipe": '[model]\\nname = "resnet8"\\n[data]\\nname = "digits"'})
    'resnet8 on digits'
    """
    try:
        recipe = tomllib.loads(str(about.get("recipe", "")))
        return f"{recipe['model']['name']} on {recipe['data']['name']}"
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
