"""The port of a server, and the names of its networks."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypersparse.errors import OptionError
from hypersparse.serve.network import Served
from hypersparse.serve.server import Server

SUFFIX = ".hsp"
PORT, FURTHER_PORTS = 8765, 9  # tried in order by default, then any free port


def listen(networks: list[Served], host: str, port: int | None) -> Server:
    """A server on the given port, or on the first free one."""
    ports = [PORT, *range(PORT + 1, PORT + 1 + FURTHER_PORTS), 0] if port is None else [port]
    for number in ports:
        try:
            return Server(networks, host=host, port=number)
        except OSError as error:
            reason = error.strerror or str(error)
    raise OptionError(f"Port {ports[-1]} of {host} cannot be used ({reason}); pass another --port, or none.")


def names_apart(paths: Sequence[Path]) -> list[str]:
    """Short unique names of files and runs.

    >>> names_apart([Path("a/m.hsp"), Path("b/m.hsp"), Path("b/other.hsp"), Path("runs/art/seed-0")])
    ['a/m.hsp', 'b/m.hsp', 'other.hsp', 'art/seed-0']
    >>> names_apart([Path("1/a/m.hsp"), Path("2/a/m.hsp")])
    ['a/m.hsp (1)', 'a/m.hsp (2)']
    """
    short = [path.name if path.suffix == SUFFIX else _last_two(path) for path in paths]
    longer = [
        _last_two(path.absolute()) if name in _repeated(short) else name
        for path, name in zip(paths, short, strict=True)
    ]
    alike = _repeated(longer)
    return [
        f"{name} ({longer[: place + 1].count(name)})" if name in alike else name for place, name in enumerate(longer)
    ]


def _last_two(path: Path) -> str:
    return "/".join((path.parts or path.absolute().parts)[-2:])


def _repeated(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}
