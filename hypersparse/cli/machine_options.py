"""Where runs are trained: the options that `train`, `compare` and `sweep` have in common."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hypersparse.storage.files import make_folder

MACHINE = "Where it is trained"
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 or auto.", rich_help_panel=MACHINE)]
Precision = Annotated[str, typer.Option("--precision", help="fp32, tf32 or bf16.", rich_help_panel=MACHINE)]
CompilerCache = Annotated[
    Path | None,
    typer.Option(
        "--compiler-cache",
        file_okay=False,
        help="Keep what is compiled here; the folder can be taken to another machine with the same GPU and torch.",
        rich_help_panel=MACHINE,
    ),
]


def keep_compiled(folder: Path | None) -> None:
    """Have torch and triton keep what they compile in a folder, and look there first; None leaves it to them."""
    if folder is None:
        return
    make_folder(folder)  # says now if it cannot be, not in the first step
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.absolute() / "torch")
    os.environ["TRITON_CACHE_DIR"] = str(folder.absolute() / "triton")
