"""Networks on the Hub: a folder, and a server that answers as the Hub does."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from hypersparse import zoo
from hypersparse.errors import RunError
from hypersparse.integrations.hub import HubNetwork

NAME = "digits-resnet8-0.98"


def outputs(network: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = network(torch.linspace(-1, 1, 128).view(2, 1, 8, 8))
    return found


def test_a_folder_holds_the_network_and_a_card(tmp_path: Path) -> None:
    network = HubNetwork.load(NAME, metrics={"images": 360})
    network.save_pretrained(tmp_path)
    again = HubNetwork.from_pretrained(str(tmp_path))
    assert torch.equal(outputs(again), outputs(zoo.load(NAME)))
    assert again.kept == network.kept > 0
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    results = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert results == {"accuracy": zoo.entry(NAME).test_accuracy, "images": 360}
    assert {each.dataset_type for each in card.data.eval_results} == {"digits"}
    assert card.data.library_name == "hypersparse"


def test_a_folder_without_a_network_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no model\.hsp"):
        HubNetwork.from_pretrained(str(tmp_path))


class Hub(BaseHTTPRequestHandler):
    """The answers of the Hub's API that pushing and downloading small files need."""

    files: dict[str, bytes]

    @property
    def home(self) -> str:
        """This server."""
        return f"http://{self.headers['Host']}"

    def log_message(self, *_: Any) -> None:
        """Be quiet."""

    def _answer(self, body: Any, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            return self._answer({"url": f"{self.home}/me/net", "id": "me/net"})
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            wanted = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            return self._answer({"files": [each | {"shouldIgnore": False} for each in wanted]})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return self._answer({"commitUrl": f"{self.home}/me/net/commit/1", "commitOid": "1" * 40})

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if self.path.startswith("/api/"):
            return self._answer({"id": "me/net", "sha": "1" * 40, "siblings": [], "private": False})
        if name not in self.files:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("X-Repo-Commit", "1" * 40)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self._answer(self.files[name], ETag=f'"{name}"', X_Repo_Commit="1" * 40)

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A Hub on this machine."""
    handler = type("OwnHub", (Hub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", address)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_is_pushed_is_loaded_again(hub: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = huggingface_hub.HfApi
    monkeypatch.setattr(
        "huggingface_hub.hub_mixin.HfApi", lambda **options: api(huggingface_hub.constants.ENDPOINT, **options)
    )
    HubNetwork.load(NAME).push_to_hub("me/net", token="hf_test")
    assert set(hub.files) == {"model.hsp", "README.md"}
    assert b"model-index" in hub.files["README.md"]
    again = HubNetwork.from_pretrained("me/net", cache_dir=tmp_path)
    assert torch.equal(outputs(again), outputs(zoo.load(NAME)))
