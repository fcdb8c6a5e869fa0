"""`@options`: frozen, validated dataclasses with short error messages."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from hypersparse.errors import OptionError, unknown

T = TypeVar("T")
CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=True, allow_inf_nan=False)


def option(*, default: Any = dataclasses.MISSING, help: str = "", **constraints: Any) -> Any:
    """A field with a help text for the command line and pydantic's constraints, such as `ge=0`."""
    if default is dataclasses.MISSING:
        return Field(description=help, **constraints)
    return Field(default=default, description=help, **constraints)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, Field))
def options(cls: type[T]) -> type[T]:
    """A frozen pydantic dataclass with keyword arguments only; bad values raise `OptionError`."""
    made: Any = pydantic_dataclass(frozen=True, kw_only=True, config=CONFIG)(cls)
    validate = made.__init__

    @functools.wraps(validate)
    def init(self: Any, *args: Any, **values: Any) -> None:
        if args:
            raise OptionError(f"{made.__name__} takes keyword arguments only; got the positional value {args[0]!r}.")
        if unknown_names := values.keys() - {field.name for field in dataclasses.fields(made)}:
            raise OptionError(_unknown_option(made, min(unknown_names)))
        try:
            validate(self, **values)
        except ValidationError as error:
            raise OptionError(_sentence(made, error)) from None

    made.__init__ = init
    checked: type[T] = made
    return checked


def help_of(cls: type) -> dict[str, str]:
    """The help text of each field.

    >>> help_of(int)
    {}
    """
    fields = getattr(cls, "__pydantic_fields__", {})
    return {name: field.description or "" for name, field in fields.items()}


def non_default(value: Any) -> dict[str, Any]:
    """The fields that differ from their defaults, including nested ones."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        now = getattr(value, field.name)
        if dataclasses.is_dataclass(now) and not isinstance(now, type):
            if inner := non_default(now):
                changed[field.name] = inner
        elif now != _default(type(value), field.name):
            changed[field.name] = list(now) if isinstance(now, tuple) else now
    return changed


def _default(cls: type, name: str) -> Any:
    fields: Mapping[str, pydantic.fields.FieldInfo] = getattr(cls, "__pydantic_fields__", {})
    return fields[name].get_default(call_default_factory=True, validated_data={})


def _unknown_option(cls: type, name: str) -> str:
    label = cls.__name__.removesuffix("Options").lower()
    return unknown(f"{label} option", name, [field.name for field in dataclasses.fields(cls)])


def _sentence(cls: type, error: ValidationError) -> str:
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, OptionError):
        return str(cause)
    name = ".".join(str(part) for part in first["loc"]) or cls.__name__
    came = first.get("input")
    if first["type"] == "missing":
        return f"`{name}` of {cls.__name__} is missing: {help_of(cls).get(name, '')}"
    expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    meaning = help_of(cls).get(str(first["loc"][0]), "") if first["loc"] else ""
    return f"`{name}` should be {expected}; got {came!r}." + (f" Meaning: {meaning}" if meaning else "")
