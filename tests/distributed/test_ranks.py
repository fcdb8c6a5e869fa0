"""`Ranks`: what several processes agree on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse.distributed import Ranks, average_statistics_
from hypersparse.errors import DataError, LoopError
from tests.distributed.processes import in_processes

pytestmark = [pytest.mark.ddp, pytest.mark.slow]


def exchange() -> dict[str, Any]:
    ranks = Ranks()
    summed, mean = torch.full((3,), 1.0 + ranks.rank), torch.tensor([[float(ranks.rank)]])
    ranks.sum_([summed, torch.ones(2, 2)])
    ranks.mean_([mean])
    model = nn.BatchNorm1d(2)
    model.running_var.fill_(ranks.rank)  # type: ignore[union-attr]
    average_statistics_(model, ranks)
    copied = torch.arange(4.0).reshape(2, 2).T + ranks.rank  # not contiguous
    ranks.copy_first_([copied])
    return {
        "sum": ranks.sum(ranks.rank, 0.5),
        "tensors": (summed.tolist(), mean.item(), copied.tolist()),
        "variance": model.running_var.tolist(),  # type: ignore[union-attr, operator]
        "decided": ranks.decide(ranks.rank != 0),
        "shares": ranks.share(10),
        "parts": ranks.concatenate(torch.arange(ranks.rank + 1)).tolist(),
        "first": ranks.from_first(lambda: "from 0"),
        "alone": (Ranks.alone().size, Ranks.alone().sum(3.0)),
    }


def test_numbers_tensors_and_decisions_are_the_same_everywhere(tmp_path: Path) -> None:
    found = in_processes(4, exchange, tmp_path)
    shares = [each.pop("shares") for each in found]
    assert [(share.start, share.stop) for share in shares] == [(0, 2), (2, 5), (5, 7), (7, 10)]
    assert all(each == found[0] for each in found)
    assert found[0] == {
        "sum": [6.0, 2.0],
        "tensors": ([10.0, 10.0, 10.0], 1.5, [[0.0, 2.0], [1.0, 3.0]]),
        "variance": [1.5, 1.5],
        "decided": False,
        "parts": [0, 0, 1, 0, 1, 2, 0, 1, 2, 3],
        "first": "from 0",
        "alone": (1, [3.0]),
    }


def fail() -> list[str]:
    ranks, said = Ranks(), []
    for kind in (DataError, ZeroDivisionError):
        try:
            with ranks.together():
                if ranks.rank == 1:
                    raise kind("no such file")
        except (DataError, ZeroDivisionError, LoopError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return [*said, str(ranks.sum(1.0))]  # and they still understand each other


def test_what_fails_on_one_rank_raises_on_all(tmp_path: Path) -> None:
    first, second = in_processes(2, fail, tmp_path)
    assert first == [
        "DataError: no such file",
        "LoopError: Rank 1 failed with ZeroDivisionError: no such file",
        "[2.0]",
    ]
    assert second == ["DataError: no such file", "ZeroDivisionError: no such file", "[2.0]"]


def leave() -> str:
    ranks = Ranks()
    ranks.sum(0.0)
    if ranks.first:
        return ""
    with pytest.raises(LoopError, match=r"The ranks did not meet .* loaders of the same length"):
        ranks.sum(1.0)
    return "said"


def test_a_rank_that_waits_in_vain_says_so(tmp_path: Path) -> None:
    assert in_processes(2, leave, tmp_path, timeout=3.0) == ["", "said"]
