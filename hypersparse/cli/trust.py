"""`--trust-code`: which own code that files name a command may import."""

from collections.abc import Iterable
from typing import Annotated

import typer

from hypersparse.cli.console import Console
from hypersparse.own_code import is_own

TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import the code outside the package that a file names (package.file:name); its names are printed first.",
    ),
]


def allowed(named: Iterable[str], *, typed: Iterable[str | None] = (), trust: bool) -> frozenset[str]:
    """The names of own code that may be imported: those `typed`, and with `trust` those `named` by a file.

    >>> sorted(allowed(["stored.file:Net"], typed=["mine:Net", "resnet8", None], trust=False))
    ['mine:Net']
    """
    own = frozenset(name for name in typed if name and is_own(name))
    if not trust:
        return own
    stored = sorted({name for name in named if is_own(name)} - own)
    for name in stored:
        Console(stderr=True, soft_wrap=True).print(f"imports {name!r}, which a file names", markup=False)
    return own | set(stored)
