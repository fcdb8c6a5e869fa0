"""The first cases of the fuzzer of `load_sparse`."""

from pathlib import Path

from tests.fuzz.fuzz_load_sparse import fuzz


def test_extreme_networks_are_refused_or_run(tmp_path: Path) -> None:
    counts, findings = fuzz(range(30), tmp_path)
    assert findings == []
    assert counts["ran"] > 5
    assert counts["refused"] > 5
