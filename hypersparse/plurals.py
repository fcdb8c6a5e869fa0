"""`how_many`: counts in sentences."""


def how_many(count: int, one: str, several: str | None = None) -> str:
    """A count with its word; by default the plural adds an s.

    >>> how_many(1, "run"), how_many(1200, "run"), how_many(0, "bias or norm is", "biases and norms are")
    ('1 run', '1,200 runs', '0 biases and norms are')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
