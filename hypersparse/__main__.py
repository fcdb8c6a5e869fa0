"""`python -m hypersparse`: the command line without an installed script."""

from hypersparse.cli.main import run

run()
