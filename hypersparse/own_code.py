"""User code named `package.file:name`, and the only place that decides whether it is imported.

A recipe names its model and method as text. It may come from someone else, in a run folder, a pack or an `.hsp` file.
A name alone therefore imports nothing. The caller passes the names that may be imported. A program passes its own. The
command line passes those typed by the user, and with `--trust-code` those it has printed.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from hypersparse.errors import OptionError, unknown


def is_own(name: str) -> bool:
    """Whether a name refers to user code.

    >>> is_own("my_package.file:Net"), is_own("resnet8"), is_own(":Net")
    (True, False, False)
    """
    file, _, attribute = name.partition(":")
    return bool(file and attribute)


def named_in(tables: Mapping[str, Any]) -> frozenset[str]:
    """The names of user code in a recipe's tables.

    >>> named_in({"model": {"name": "mine:Net"}, "method": {"name": "art"}})
    frozenset({'mine:Net'})
    """
    parts = [part for part in (tables.get("model"), tables.get("method")) if isinstance(part, Mapping)]
    names = [part.get("name") for part in parts]
    return frozenset(name for name in names if isinstance(name, str) and is_own(name))


def check(name: str, *, kind: str, own_code: Collection[str]) -> None:
    """Raise an error if a name may not be imported."""
    file, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*file.split("."), attribute)):
        raise OptionError(f"Your own {kind} is named `package.file:name`, without slashes; got `{name}`.")
    if name not in own_code:
        raise OptionError(
            f"The {kind} `{name}` is code from outside the package, so it was not imported. If you trust it, name it "
            f"on the command line or pass --trust-code (in Python: own_code=[{name!r}])."
        )
    if file.partition(".")[0] in sys.stdlib_module_names:
        raise OptionError(f"The {kind} `{name}` belongs to Python itself; name a class or function of your own.")


def load(name: str, *, kind: str, own_code: Collection[str]) -> Callable[..., Any]:
    """Import the class or function `name` if `own_code` contains it; `kind`, such as model, is used in errors."""
    check(name, kind=kind, own_code=own_code)
    file, _, attribute = name.partition(":")
    return _defined_in(_imported(file, f"{kind} `{name}`"), attribute, kind)


def _imported(file: str, what: str) -> ModuleType:
    try:
        with _current_folder_importable():
            return import_module(file)
    except ImportError as error:
        raise OptionError(f"`{file}` of the {what} cannot be imported: {error}.") from error


def _defined_in(module: ModuleType, name: str, kind: str) -> Callable[..., Any]:
    """A class or function defined in a module, not imported by it."""
    file, found = module.__name__, vars(module).get(name)
    if isinstance(found, type | FunctionType) and found.__module__ == file:
        return found
    if isinstance(found, type | FunctionType):
        raise OptionError(f"`{name}` is defined in {found.__module__}, not in {file}; name the {kind} there.")
    code = {key: value for key, value in vars(module).items() if isinstance(value, type | FunctionType)}
    defined = [key for key, value in code.items() if value.__module__ == file and key[0] != "_"]
    raise OptionError(unknown(f"class or function in {file}", name, defined))


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    # A console script, unlike `python -m`, does not look for modules in the current folder.
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
