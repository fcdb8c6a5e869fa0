"""`--trust-code`: the user code that a file names and that a command may import."""

from collections.abc import Iterable
from typing import Annotated

import typer

from hypersparse.cli.console import Console
from hypersparse.own_code import is_own

TRUST_HELP = "Import the user code that a file names (package.file:name); the names are printed first."
TrustCode = Annotated[bool, typer.Option("--trust-code", help=TRUST_HELP)]


def allowed(named: Iterable[str], *, typed: Iterable[str | None] = (), trust: bool) -> frozenset[str]:
    """The names of user code that may be imported: those `typed`, and with `trust` those `named` by a file.

    >>> sorted(allowed(["stored.file:Net"], typed=["mine:Net", "resnet8", None], trust=False))
    ['mine:Net']
    """
    own = frozenset(name for name in typed if name and is_own(name))
    if not trust:
        return own
    stored = sorted({name for name in named if is_own(name)} - own)
    for name in stored:
        Console(stderr=True).say(f"imports {name!r}, which a file names")
    return own | set(stored)
