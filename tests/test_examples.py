"""The examples run as they stand."""

import importlib.util
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


STUB = ROOT / "tests" / "integrations" / "torchvision_stub"
TRAINERS = {  # the share of weights that is removed, in tenths, and the accuracy that is reached at least
    "lightning_trainer": (9, 0.8),
    "transformers_trainer": (8, 0.8),
    "accelerate_loop": (9, 0.8),
    "timm_loop": (8, 0.8),
    "peft_loop": (8, 0.8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainers_script(name: str, tmp_path: Path) -> None:
    path = [str(ROOT), os.environ["PYTHONPATH"]]
    if name == "timm_loop":
        if not _finds("timm"):
            pytest.skip("timm is not installed")
        path += [] if _finds("torchvision") else [str(STUB)]
    removed, least = TRAINERS[name]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) of (\d+) weights kept, accuracy ([\d.]+)", done.stdout)
    assert found, done.stdout
    kept, total, accuracy = int(found[1]), int(found[2]), float(found[3])
    assert kept == total - total * removed // 10
    assert accuracy > least
    assert not list(tmp_path.iterdir()), "nothing is written where the script is run"


def _finds(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp_loop", "fsdp_loop"])
def test_a_script_of_several_processes(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(ROOT / "examples" / f"{name}.py")],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"2586 of 25856 weights kept, accuracy ([\d.]+)(?:, (\d+) bytes)?", done.stdout.strip())
    assert found, done.stdout
    assert float(found[1]) > 0.8
    assert name == "ddp_loop" or (tmp_path / "model.hsp").stat().st_size == int(found[2])
