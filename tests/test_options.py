"""Options: frozen, checked when made, with errors of one sentence."""

import dataclasses
from typing import Any, Literal

import pytest

from hypersparse import ART
from hypersparse.errors import OptionError
from hypersparse.options import help_of, non_default, option, options


@options
class Inner:
    """Options inside options."""

    depth: int = option(default=2, help="Levels.", ge=1)
    sizes: tuple[int, ...] = option(default=(1, 2), help="Of each level.")


@options
class Outer:
    """Options of all kinds."""

    rate: float = option(default=0.5, help="How fast.", gt=0, lt=1)
    kind: Literal["red", "blue"] = option(default="red", help="Which colour.")
    count: int = option(default=3, help="How many.", ge=0)
    inner: Inner = option(default=Inner(), help="What is inside.")


@options
class Required:
    """One option has no default."""

    path: str = option(help="Where it is.")


def message(make: type, **values: Any) -> str:
    with pytest.raises(OptionError) as error:
        make(**values)
    text = str(error.value)
    assert "\n" not in text
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return text


def test_an_unknown_option_names_the_nearest() -> None:
    assert message(Outer, rat=0.1) == (
        "There is no outer option `rat`; did you mean `rate`? Known: count, inner, kind, rate."
    )
    assert "did you mean `sparsity`?" in message(ART, sparsitty=0.9)
    assert message(Outer, zzz=1) == "There is no outer option `zzz`. Known: count, inner, kind, rate."


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"rate": "fast"}, "`rate` should be a valid number, unable to parse string as a number; got 'fast'."),
        ({"rate": 1.5}, "`rate` should be less than 1; got 1.5. Meaning: How fast."),
        ({"rate": 0}, "`rate` should be greater than 0; got 0."),
        ({"rate": float("nan")}, "`rate` should be a finite number; got nan."),
        ({"rate": float("inf")}, "`rate` should be a finite number; got inf."),
        ({"count": 1.5}, "`count` should be a valid integer, got a number with a fractional part; got 1.5."),
        ({"count": None}, "`count` should be a valid integer; got None. Meaning: How many."),
        ({"kind": "green"}, "`kind` should be 'red' or 'blue'; got 'green'. Meaning: Which colour."),
        ({"inner": 3}, "`inner` should be"),
    ],
)
def test_an_invalid_value_raises_an_error(values: dict[str, Any], says: str) -> None:
    assert message(Outer, **values).startswith(says)


def test_an_invalid_sparsity_has_its_own_message() -> None:
    assert message(ART, sparsity=98) == (
        "`sparsity` is the fraction of weights removed and must be in [0, 1); got 98. For 98 % sparsity pass 0.98."
    )


@pytest.mark.parametrize("sparsity", [1.0, -0.1, float("nan"), True, "much"])
def test_values_outside_the_range_are_no_sparsity(sparsity: Any) -> None:
    assert "sparsity" in message(ART, sparsity=sparsity)


def test_a_missing_value_shows_its_help() -> None:
    assert message(Required) == "`path` of Required is missing: Where it is."
    assert Required(path="here").path == "here"


def test_options_are_keyword_only() -> None:
    with pytest.raises(OptionError, match=r"ART takes keyword arguments only; got the positional value 0\.9"):
        ART(0.9)  # type: ignore[misc]


def test_options_are_frozen_values() -> None:
    value = Outer(rate=0.25)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.rate = 0.75  # type: ignore[misc]
    assert value == Outer(rate=0.25)
    assert hash(value) == hash(Outer(rate=0.25))
    assert dataclasses.replace(value, count=4) == Outer(rate=0.25, count=4)
    with pytest.raises(OptionError, match="less than 1"):
        dataclasses.replace(value, rate=2)


def test_numbers_are_converted() -> None:
    value = Outer(count=4.0, inner=Inner(sizes=[5, 6]))  # type: ignore[arg-type]
    assert isinstance(value.count, int)
    assert value.inner.sizes == (5, 6)


def test_non_default_returns_changed_fields() -> None:
    assert non_default(Outer()) == {}
    assert non_default(Outer(rate=0.5, count=3, kind="red")) == {}
    assert non_default(Outer(rate=0.1, kind="blue")) == {"rate": 0.1, "kind": "blue"}
    assert non_default(Outer(inner=Inner(depth=3, sizes=(4,)))) == {"inner": {"depth": 3, "sizes": [4]}}
    assert non_default(Required(path="x")) == {"path": "x"}
    assert non_default(ART(sparsity=0.95, pretrain_epochs=0)) == {"pretrain_epochs": 0}


def test_every_field_has_a_help_text() -> None:
    assert help_of(Inner) == {"depth": "Levels.", "sizes": "Of each level."}
    assert all(help_of(ART).values())


def test_defaults_are_validated() -> None:
    @options
    class Wrong:
        """A default out of range."""

        count: int = option(default=-1, help="How many.", ge=0)

    assert message(Wrong).startswith("`count` should be greater than or equal to 0; got -1.")
