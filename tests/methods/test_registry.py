"""Methods by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hypersparse import ART, Dense, methods
from hypersparse.errors import OptionError
from hypersparse.methods.base import Method

OWN_METHOD = '''
from typing import ClassVar
from hypersparse import Method, Phase
from hypersparse.options import option, options

@options
class Mine(Method):
    """My own method."""
    name: ClassVar[str] = "mine"
    citation: ClassVar[str] = "none"
    extra: int = option(default=1, help="More of it.", ge=0)

    def plan(self, epochs):
        return [Phase("all", epochs=epochs + self.extra)]

class NoMethod:
    pass

class HalfDone(Method):
    """Without a plan."""

number = 3
'''


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys_package").mkdir()
    (tmp_path / "somebodys_package" / "own.py").write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "somebodys_package.own"
    for name in ("somebodys_package", "somebodys_package.own"):
        sys.modules.pop(name, None)


def test_methods_are_found_by_the_name_of_their_file() -> None:
    assert methods.find("art") is ART
    assert methods.find("dense") is Dense
    assert {"art", "dense"} <= set(methods.names())
    assert methods.names() == sorted(methods.names())


@pytest.mark.parametrize("name", methods.names())
def test_each_name_is_its_classs(name: str) -> None:
    assert methods.find(name).name == name


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"There is no method `atr`; did you mean `art`\? Known: .*art, dense"):
        methods.find("atr")


@pytest.mark.parametrize("name", ["base", "registry", "task", "snapshot", "", ":Mine", "art:"])
def test_files_that_are_no_methods_are_unknown(name: str) -> None:
    with pytest.raises(OptionError, match=f"There is no method `{name}`"):
        methods.find(name)


def mine(name: str) -> type[Method]:
    """A method that this program itself names."""
    return methods.find(name, own_code=[name])


def test_anybodys_method(own_module: str) -> None:
    kind = mine(f"{own_module}:Mine")
    assert issubclass(kind, Method)
    assert kind(extra=2).plan(3)[0].epochs == 5  # type: ignore[call-arg]
    assert "mine" not in methods.names()
    with pytest.raises(OptionError, match="did you mean `extra`"):
        kind(extras=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("attribute", ["NoMethod", "HalfDone"])
def test_what_is_no_method(own_module: str, attribute: str) -> None:
    with pytest.raises(OptionError, match=rf"`{own_module}:{attribute}` should be a subclass of hypersparse\.Method"):
        mine(f"{own_module}:{attribute}")


def test_what_cannot_be_imported(own_module: str) -> None:
    for name in ("Yours", "number", "option"):
        with pytest.raises(OptionError, match=f"`{name}`"):
            mine(f"{own_module}:{name}")
    with pytest.raises(OptionError, match="cannot be imported: No module named 'nobodys_package'"):
        mine("nobodys_package.own:Mine")


def test_a_method_that_is_not_imported_has_its_options_and_no_plan() -> None:
    method = methods.Unimported(name="theirs.file:Method", options={"sparsity": 0.9, "penalty": 3})
    assert (method.label(), method.sparsity, method.penalty) == ("Method", 0.9, None)
    with pytest.raises(OptionError, match=r"theirs\.file:Method.*not imported"):
        method.plan(3)
