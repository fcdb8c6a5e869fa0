"""`hypersparse zoo`: the trained sparse networks of the package."""

import dataclasses

from rich.markup import escape

from hypersparse import zoo as networks
from hypersparse.cli.console import AsJson, print_json, table, table_console
from hypersparse.cli.formats import count, percent


def zoo(as_json: AsJson = False) -> None:
    """List trained sparse networks; `hypersparse.zoo.load(NAME)` loads one."""
    found = networks.entries()
    if as_json:
        print_json([dataclasses.asdict(entry) for entry in found])
        return
    console = table_console()
    shown = table("name", ">sparsity", ">kept", ">last %", ">best %", ">file %", ">bytes", "recipe", ">seed")
    shown.columns[0].no_wrap = True
    for entry in found:
        numbers = [f"{entry.sparsity:.4g}", count(entry.kept)]
        method = entry.recipe.removeprefix(f"{entry.data}-{entry.model}-")  # data and model are in the name
        shares = [percent(share) for share in (entry.last, entry.best, entry.test_accuracy)]
        shown.add_row(escape(entry.name), *numbers, *shares, count(entry.bytes), escape(method), str(entry.seed))
    console.print(shown)
    picked = " or ".join(sorted({entry.best_picked_on for entry in found}))
    console.print(
        f"last: test accuracy of the last epoch, which has this network. best: of the epoch picked on {picked} images. "
        "file: of the file in the sparse runtime.",
        style="dim", highlight=False,
    )  # fmt: skip
