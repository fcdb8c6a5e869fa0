"""`SparsityCallback` with Lightning's ModelParallelStrategy: FSDP2 in two processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations.test_lightning import sparsity_of

SCRIPT = Path(__file__).with_name("sharded_lightning.py")


@pytest.mark.slow
@pytest.mark.ddp
def test_sharded_weights_are_pruned_and_a_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    states = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for state in states:
        assert sparsity_of(state["whole"]) == pytest.approx(0.8, abs=1e-3)
        for name, weight in states[0]["whole"].items():
            assert torch.equal(state["whole"][name], weight)
            assert torch.equal(state["resumed"][name], weight)
