"""Times networks in headless Chromium, beside onnxruntime-web on their dense twins in the same page."""

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.networks import load_or_generate
from hypersparse.errors import OptionError
from hypersparse.export.sparse_file import exact
from hypersparse.export.web.package import write_package
from hypersparse_runtime.file import write
from hypersparse_runtime.onnx import to_onnx

ENGINE = "onnxruntime-web"
VERSION = "1.30.0"
ENGINE_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
PAGE = Path(__file__).with_name("web_page.html")
MOST_DIFFERENCE = 1e-4  # of the largest output
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE = 600_000  # milliseconds for one network


@dataclass(frozen=True)
class WebRow:
    """One network in one page. Times are medians of the rounds, in which both engines take turns."""

    model: str
    sparsity: float
    mask: str
    browser: str
    sparse_milliseconds: float
    sparse_low: float  # first and last tenth of the rounds
    sparse_high: float
    dense_milliseconds: float
    dense_low: float
    dense_high: float
    speedup: float
    difference: float  # of the outputs, relative to the largest
    bytes: int  # of the .hsp file
    dense_bytes: int  # of the ONNX file
    load_milliseconds: float
    dense_load_milliseconds: float


class WebBench:
    """A page on which both engines run, one network after the other."""

    def __init__(self, masks: Path, rounds: int, package: Path | None) -> None:
        self.masks, self.rounds, self.package = masks, rounds, package

    def run(self, cases: Sequence[tuple[str, float]], ended: Callable[[WebRow], None]) -> list[WebRow]:
        """A row for each model and sparsity."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self._write_engines(folder)
            for model, sparsity in cases:
                self._write_network(folder, model, sparsity)
            rows = []
            with _served(folder) as address, _page(address) as page:
                for model, sparsity in cases:
                    rows.append(self._measured(page, folder, model, sparsity))
                    ended(rows[-1])
        return rows

    def _write_engines(self, folder: Path) -> None:
        write_package(folder)
        shutil.copy(PAGE, folder / "index.html")
        package = self.package
        if package is None:
            command = ["npm", "install", "--no-save", "--ignore-scripts", f"{ENGINE}@{VERSION}"]
            try:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
            except (OSError, subprocess.SubprocessError):
                raise OptionError(
                    f"{ENGINE} could not be installed with npm; pass --package FOLDER, where it is unpacked."
                ) from None
            package = folder / "node_modules" / ENGINE
        (folder / "ort").mkdir()
        for name in ENGINE_FILES:
            if not (package / "dist" / name).is_file():
                raise OptionError(f"{package} holds no {ENGINE}: there is no dist/{name}; pass the unpacked package.")
            shutil.copy(package / "dist" / name, folder / "ort" / name)

    def _write_network(self, folder: Path, model: str, sparsity: float) -> None:
        network = load_or_generate(model, sparsity, self.masks)
        write(exact(network.graph), folder / f"{model}-{sparsity:g}.hsp")
        (folder / f"{model}-{sparsity:g}.onnx").write_bytes(to_onnx(network.graph))

    def _measured(self, page: Any, folder: Path, model: str, sparsity: float) -> WebRow:
        stem = f"{model}-{sparsity:g}"
        found = page.evaluate("([stem, rounds]) => window.measure(stem, rounds)", [stem, self.rounds])
        mask = load_or_generate(model, sparsity, self.masks).mask
        files = {suffix: (folder / f"{stem}{suffix}").stat().st_size for suffix in (".hsp", ".onnx")}
        if found["difference"] > MOST_DIFFERENCE:
            raise OptionError(f"Outputs of {stem} differ by {found['difference']:.1e} of the largest.")
        return WebRow(
            model=model,
            sparsity=sparsity,
            mask=mask,
            browser=page.evaluate("navigator.userAgent").split("Chrome/")[-1].split(" ")[0],
            bytes=files[".hsp"],
            dense_bytes=files[".onnx"],
            speedup=found["dense_milliseconds"] / found["sparse_milliseconds"],
            **found,
        )


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The folder over HTTP, since pages may not fetch files from disk."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    """Scripts and WebAssembly have the types that browsers insist on."""

    def guess_type(self, path: Any) -> str:
        """By the ending of the name."""
        types = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}
        return types.get(Path(path).suffix) or super().guess_type(path)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is said of requests."""


@contextmanager
def _page(address: str) -> Iterator[Any]:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise OptionError("The benchmark needs Chromium: apt-get install chromium.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=browser, args=FLAGS)
        page = started.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_function("() => Boolean(window.measure)")
        yield page
        started.close()


def as_json(rows: Sequence[WebRow]) -> list[dict[str, Any]]:
    """Rows as plain JSON."""
    return json.loads(json.dumps([asdict(row) for row in rows]))  # type: ignore[no-any-return]
