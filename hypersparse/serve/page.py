"""The page: one file that requests data from its own server only."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from hypersparse import __version__
from hypersparse.pages.template import asset, fill, script_of, source_hash, to_json
from hypersparse.serve.images import FORMATS
from hypersparse.serve.network import Served

SHARED_SCRIPTS = ("elements", "theme", "numbers", "pad", "samples", "verdict", "picker")
SCRIPTS = ("comparison", "main")


@dataclass(frozen=True)
class Page:
    """The page and its content security policy, which allows its own scripts, styles and requests only."""

    text: str
    policy: str


def make_page(networks: Sequence[Served], most_bytes: int) -> Page:
    """The page of these networks, for images of at most `most_bytes`."""
    names = ", ".join(network.name for network in networks)
    style = asset("base.css") + asset("demo.css") + asset("serve.css", __package__)
    shared = (asset(f"{name}.js") for name in SHARED_SCRIPTS)
    script = script_of(*shared, *(asset(f"{name}.js", __package__) for name in SCRIPTS))
    content = {
        "version": __version__,
        "most_bytes": most_bytes,
        "types": [f"image/{name.lower()}" for name in FORMATS],
        "networks": [network.about() for network in networks],
    }
    text = fill(
        asset("demo.html"),
        {
            "POLICY": "",
            "PACKED": "",
            "TITLE": html.escape(f"{names}: hypersparse"),
            "STYLE": style,
            "DATA": to_json(content),
            "SCRIPT": script,
        },
    )
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text, policy)
