"""The kernel for 64-bit ARM in QEMU."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "neon"
SKIPPED = 77


@pytest.mark.slow
def test_the_kernel_for_arm_gives_what_pytorch_gives() -> None:
    done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    assert "vgg11, rows, 1 side by side" in done.stdout
