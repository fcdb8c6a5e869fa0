"""The runtime for browsers in Node: networks of files on images."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NODE = shutil.which("node")
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="needs Node: apt-get install nodejs")
RUNNER = Path(__file__).with_name("run.mjs")
SECONDS = 120


def run_in_node(package: Path, cases: Iterable[tuple[Path, np.ndarray | None]]) -> list[dict[str, Any]]:
    """For each file and its images, if any: outputs and what the model says of itself, or the error."""
    lines = [
        json.dumps({"file": str(file), "images": None if images is None else images.ravel().tolist()})
        for file, images in cases
    ]
    done = subprocess.run(
        [NODE or "node", str(RUNNER), str(package / "dist" / "index.js")],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    for answer in answers:
        answer["outputs"] = np.array([float(number) for number in answer.get("outputs", [])])
    return answers
