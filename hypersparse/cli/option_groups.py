"""Groups of options: dataclasses whose fields are options, shared by several commands."""

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import typer


def option(default: Any, help: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """A field that is an option. Without `names` it is called like the field; `settings` are typer's."""
    return field(
        default=default, metadata={"typer": typer.Option(*names, help=help, rich_help_panel=panel, **settings)}
    )


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes dataclasses, as one whose options are their fields, in the same order."""
    parameters, groups = list[Parameter](), dict[str, Any]()
    hints = get_type_hints(command, include_extras=True)
    for parameter in signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            field_types = get_type_hints(kind, include_extras=True)
            parameters += [_parameter(each, field_types[each.name]) for each in fields(kind)]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind))

    @wraps(command)
    def call(**values: Any) -> None:
        made = {name: group(**{each.name: values.pop(each.name) for each in fields(group)})
                for name, group in groups.items()}  # fmt: skip
        command(**made, **values)

    call.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(each: "Field[Any]", kind: Any) -> Parameter:
    default = Parameter.empty if each.default is MISSING else each.default
    shown = Annotated[kind, each.metadata["typer"]] if each.metadata else kind
    return Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=shown)
