import json

import typer
from typer.testing import CliRunner

from hypersparse import methods as registry
from hypersparse.cli.methods import methods

app = typer.Typer()
app.command()(methods)


def listed(*options: str) -> str:
    done = CliRunner().invoke(app, list(options), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_every_method_has_a_line() -> None:
    text = listed()
    lines = text.splitlines()
    assert lines[0].split()[0] == "method"
    for name in registry.names():
        assert any(line.startswith(f"{name} ") for line in lines)
    assert "221 to 520" in text  # ART: 60, 1 to 300, and 160


def test_json_has_the_same_in_plain_values() -> None:
    found = {method["name"]: method for method in json.loads(listed("--json", "--epochs", "10"))}
    assert list(found) == registry.names()
    assert (found["art"]["epochs_least"], found["art"]["epochs_most"]) == (71, 370)
    assert found["art"]["phases"] == {"pre-train": 60, "regularize": 300, "fine-tune": 10}
    assert found["dense"]["about"] == "Train all weights; prune nothing."
    assert "Glandorf" in found["art"]["citation"]


def test_only_the_first_sentence_is_told() -> None:
    class Long:
        """One thing. Another
        thing.

        More.
        """

    assert registry.first_sentence(Long) == "One thing."
    assert registry.first_sentence(type("Silent", (), {})) == ""
