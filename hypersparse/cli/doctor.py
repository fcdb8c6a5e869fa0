"""`hypersparse doctor`: what is installed, what works on this machine, and what is missing for what."""

from dataclasses import asdict

import typer
from rich.markup import escape

from hypersparse.cli.console import AsJson, print_json, table, table_console
from hypersparse.integrations.installation import State, findings

COLORS: dict[State, str] = {"ok": "green", "missing": "yellow", "failed": "red"}


def doctor(as_json: AsJson = False) -> None:
    """Print what is installed, which engines and extras work, and what is missing."""
    found = findings()
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        rows = [
            (row.part, f"[{COLORS[row.state]}]{row.state}[/]", escape(row.found), escape(row.note)) for row in found
        ]
        table_console(highlight=False).print(table("part", "state", "found", "note", rows=rows))
    if any(finding.state == "failed" for finding in found):
        raise typer.Exit(1)
