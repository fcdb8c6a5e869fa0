"""`quiet`: run PyTorch's exporters without their prints, logs and warnings."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

LONGEST = 500  # characters: PyTorch repeats lists of any length


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress output inside the block; errors are still raised."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """The message of an exception, shortened to one line."""
    text = str(error).strip()
    return text.splitlines()[0][:LONGEST] if text else type(error).__name__
