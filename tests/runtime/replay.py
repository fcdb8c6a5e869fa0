"""Run programs with a kernel for another processor, and compare: python -m tests.runtime.replay FOLDER COMMAND..."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from hypersparse import models
from hypersparse.export.trace import trace
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.kernel_program import Program, write_program
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.tuning import CONV, FEW_TAPS, FEW_TAPS_TILES, TILES
from tests import architectures
from tests.runtime.networks import sparse_

IMAGES = 3
COMMON = ("mobile_net", "squeeze_net", "dense_net")


def set_tiles_(program: Program) -> None:
    """Tiles of whole rows for vectors of four floats."""
    for step in program.steps:
        step["level"] = 0
        if step["kind"] == CONV:
            whole = max(1, int(step["out_pitch"]) // 4) if step["shifts"] >= 0 else 1
            most = TILES["neon"][int(step["chains"])]
            step["tile"] = min(most // whole * whole, max(whole, -(-int(step["segment_length"]) // 4)))
        elif step["kind"] == FEW_TAPS:
            step["tile"] = FEW_TAPS_TILES["neon"][0]


def replay(program: Program, images: np.ndarray, folder: Path, command: list[str]) -> np.ndarray:
    """The outputs that a command makes of a program."""
    outputs = int(np.prod(program.output_shape))
    sizes = [
        len(program.steps),
        len(program.tables),
        program.workspace_floats,
        program.image_size,
        outputs,
        len(images),
    ]
    file = folder / "program"
    header = np.array([*sizes, program.lanes], dtype=np.int64).tobytes()
    file.write_bytes(header + program.steps.tobytes() + program.tables.tobytes() + images.tobytes())
    done = subprocess.run([*command, str(file)], check=True, capture_output=True, timeout=300)
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(images), *program.output_shape)


def main(folder: Path, command: list[str]) -> None:
    """Networks of several kinds in every layout."""
    rng = np.random.default_rng(0)
    for name in ("resnet8", "vgg11", *COMMON):
        torch.manual_seed(0)
        build = getattr(architectures, name) if name in COMMON else None
        model = sparse_(build() if build else models.build(name, shape=(3, 32, 32), classes=10), 0.7 if build else 0.95)
        network = with_lazy_bias(without_dead_channels(layers_of(trace(model, (3, 32, 32)))))
        images = rng.normal(size=(IMAGES, 3, 32, 32)).astype(np.float32)
        with torch.no_grad():
            wanted = model(torch.from_numpy(images)).numpy()
        for rows, lanes in ((True, 1), (False, 1), (False, 8)):
            program = write_program(place(network, rows=rows), lanes, vector=4)
            set_tiles_(program)
            difference = np.abs(replay(program, images, folder, command) - wanted).max() / np.abs(wanted).max()
            print(f"{name}, {'rows' if rows else 'padded'}, {lanes} side by side: {difference:.1e} from PyTorch")
            assert difference < 1e-5


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
