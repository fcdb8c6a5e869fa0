"""A short part of the fuzzer of runs and packs; `python -m tests.fuzz.fuzz_runs` goes on for as long as one likes."""

from pathlib import Path

import pytest

from hypersparse.cli.registry import COMMANDS
from tests.fuzz.damage import copy
from tests.fuzz.fuzz_runs import ANALYSES, LABEL, NOT_OF_RUNS, PACK_READER, READERS, case, make_template, start

CASES = 15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_damaged_runs_and_packs_are_one_sentence(tmp_path: Path) -> None:
    template, root = make_template(tmp_path / "template"), tmp_path / "root"
    root.mkdir()
    whole = copy(template, tmp_path / "whole")
    run = next((whole / LABEL).glob("*/seed-0"))
    (whole / "out").mkdir()
    for command in READERS:  # they are typed as they should be
        for analysis in ANALYSES if "{analysis}" in command else ("",):
            words = [word.format(run=run, seed=0, analysis=analysis) for word in command]
            assert start(words, whole).returncode == 0, words
    findings = [finding for number in range(CASES) if (finding := case(template, root, number, seed=0))]
    assert findings == []


def test_every_command_that_reads_runs_is_fuzzed() -> None:
    typed = {command[0] for command in (*READERS, PACK_READER)}
    assert typed | set(NOT_OF_RUNS) == COMMANDS.keys()
