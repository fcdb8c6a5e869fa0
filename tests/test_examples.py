"""The examples run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_plain_loop() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "plain_loop.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    phases = list(dict.fromkeys(line.split()[2] for line in lines[:-1]))
    assert phases == ["pre-train", "regularize", "fine-tune"]
    last = re.fullmatch(r"(\d+) of (\d+) weights kept, test accuracy ([\d.]+)", lines[-1])
    assert last, lines[-1]
    kept, total, accuracy = int(last[1]), int(last[2]), float(last[3])
    assert total == 64 * 128 + 128 * 128 + 128 * 10
    assert kept == total - total * 9 // 10 == 2586
    assert accuracy > 0.8
