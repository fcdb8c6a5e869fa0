"""`quiet`: PyTorch's exporters without what they print, log and warn about their own insides."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

LONGEST = 500  # characters: PyTorch repeats lists of any length


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block nothing is said; errors still come as exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """What an exception says, in one line that is not endless."""
    text = str(error).strip()
    return text.splitlines()[0][:LONGEST] if text else type(error).__name__
