"""Where techniques act in a plan, what phases runs share, and how a plan is printed."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse import OptionError, Techniques
from hypersparse.methods.base import Phase
from tests.cli.commands import QUICK, run
from tests.training.small import small


def plan(**techniques: Any) -> list[Phase]:
    return small(techniques=techniques).plan()


def keys(phases: list[Phase]) -> list[str | None]:
    return [phase.cache_key for phase in phases]


def test_without_techniques_the_plan_is_the_methods() -> None:
    assert all(
        phase.rules.around_step is phase.rules.around_gradient is phase.rules.around_scoring is None for phase in plan()
    )
    assert small(techniques={"ema": 0.0}).key == small().key


def test_runs_share_the_phases_that_a_technique_does_not_change() -> None:
    for name in ("ema", "sam"):
        assert keys(plan(**{name: 0.5, f"{name}_phases": "last"})) == keys(plan())
        assert keys(plan(**{name: 0.5}))[0] != keys(plan())[0]
    distilled = plan(distill=1.0)
    assert keys(distilled) == keys(plan(distill=1.0, distill_phases="all"))
    assert keys(distilled)[0] == keys(plan(distill=3.0, distill_temperature=4.0))[0]  # the teacher is the same
    assert keys(distilled)[0] != keys(plan(distill=1.0, teacher_decay=0.5))[0]
    assert keys(distilled)[1] != keys(plan(distill=3.0))[1]
    assert keys(plan(distill=1.0, distill_phases="last"))[1] == keys(plan())[1]


def test_where_each_acts() -> None:
    assert [phase.rules.around_gradient is not None for phase in plan(sam=0.1)] == [True, True, True]
    assert [phase.rules.around_gradient is not None for phase in plan(sam=0.1, sam_phases="last")] == [
        False,
        False,
        True,
    ]
    assert [phase.rules.extra_loss is not None for phase in plan(distill=1.0)] == [False, True, True]
    assert [phase.rules.extra_loss is not None for phase in plan(distill=1.0, distill_phases="last")] == [
        False,
        False,
        True,
    ]


def test_a_run_that_ends_early_has_the_beginning_of_the_whole_plan() -> None:
    whole, part = plan(ema=0.9), small(techniques={"ema": 0.9}, until="regularize").plan()
    assert keys(part) == keys(whole)[:2]
    # An average becomes the weights where training begins again, which the last phase of the part is not.
    assert small(until="pre-train").plan()[0].on_exit is None


def test_a_plan_is_printed_in_the_methods_words(tmp_path: Path) -> None:
    settings = ["--set", "techniques.ema=0.9", "--set", "techniques.sam=0.1", "--set", "techniques.distill=1"]
    done = run("plan", *QUICK, *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a growing penalty on the weights, S2-SAM, distilled, scored by its averaged weights" in done.stdout
    assert "until pruning is free, then prune" in done.stdout


def test_options_of_a_technique_that_is_off_are_refused() -> None:
    for options in ({"sam_phases": "last"}, {"distill_temperature": 3.0}, {"reparametrize_balance": 2.0}):
        with pytest.raises(OptionError, match="which is off"):
            Techniques(**options)  # type: ignore[arg-type]
