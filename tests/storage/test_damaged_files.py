"""A short part of the fuzzer of runs and packs; `python -m tests.fuzz.fuzz_runs` goes on for as long as one likes."""

from pathlib import Path

import pytest

from tests.cli.commands import run as run_command
from tests.fuzz.fuzz_runs import LABEL, READERS, case, make_template

CASES = 25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_damaged_runs_and_packs_are_one_sentence(tmp_path: Path) -> None:
    template, root = make_template(tmp_path / "template"), tmp_path / "root"
    root.mkdir()
    for command in READERS:  # they are typed as they should be
        words = [word.format(run=LABEL, seed=0, analysis="layers") for word in command]
        assert "No such option" not in run_command(*words, folder=template).stderr
    findings = [finding for number in range(CASES) if (finding := case(template, root, number, seed=0))]
    assert findings == []
