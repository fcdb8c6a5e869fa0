"""`python -m reproduction`: rebuild docs/reproduction.md and the README's table from results/."""

import argparse
import sys
from pathlib import Path

from hypersparse.errors import HypersparseError
from reproduction.page import build

CHECKOUT = Path(__file__).parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Build both pages and print the files written; the exit code is 2 after an error."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("--root", type=Path, default=CHECKOUT, help="folder with results/, docs/ and README.md")
    root = parser.parse_args(arguments).root
    try:
        written = build(root)
    except HypersparseError as error:
        print(error, file=sys.stderr)
        return 2
    print(*(path.relative_to(root) for path in written), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
