"""What only some users install."""

from importlib import import_module
from typing import Any

from hypersparse.errors import OptionError


def needed(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an extra, or say which one to install.

    >>> needed("json", "json", "Nothing").dumps(1)
    '1'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise OptionError(
            f"{purpose} needs the extra `{extra}` and `{error.name or module}` could not be imported; "
            f"install it with: pip install 'hypersparse[{extra}]'"
        ) from None
