"""Each method against the best, over the seeds of both."""

import pandas as pd
import pytest

from hypersparse.analysis.paired import markdown, paired
from tests.analysis.test_comparison import collected, result


def runs() -> pd.DataFrame:
    return collected(
        [
            *(result("art", 0.9, seed, last) for seed, last in enumerate((0.90, 0.92, 0.94))),
            *(result("snip", 0.9, seed, last) for seed, last in enumerate((0.89, 0.90, 0.91))),
            *(result("rigl", 0.9, seed, last) for seed, last in ((1, 0.80), (7, 0.99))),
            result("lth", 0.9, 9, 0.10),
            result("art", 0.98, 0, 0.85),
            result("dense", None, 0, 0.97, sparse=False),
        ]
    )


def test_differences_are_over_common_seeds() -> None:
    table = paired(runs())
    assert list(table["method"]) == ["snip", "rigl"]  # lth has no seed in common, nobody else is at 98 %
    assert set(table["against"]) == {"art"}
    snip, rigl = table.itertuples()
    assert (snip.seeds, snip.difference, snip.deviation) == (3, pytest.approx(-2.0), pytest.approx(1.0))
    assert snip.flip_p == 0.25
    assert (rigl.seeds, rigl.difference) == (1, pytest.approx(-12.0))
    assert pd.isna(rigl.t_p)


def test_the_table_reads_well() -> None:
    text = markdown(paired(runs()))
    assert "| 90 % | snip | art | 3 | -2.00 | -4.48 to +0.48 | 0.074 | 0.250 |" in text
    assert "| 90 % | rigl | art | 1 | -12.00 |  |  |  |" in text
