"""`kill -9` at any moment costs little, and what remains goes on to the same bits."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.training.small import small
from tests.training.test_loop import same_network, values

PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
from hypersparse.recipe import Recipe
from hypersparse.training.loop import train
from hypersparse.training.callbacks import Callback
from hypersparse.training.machine import Machine

class Say(Callback):
    def stepped(self, step):
        print("step", flush=True)

recipe = Recipe.from_toml(open(sys.argv[1]).read())
train(recipe, 0, Machine(device="cpu", checkpoint_seconds=0.0), sys.argv[2], callback=Say())
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    recipe = small(training={"epochs": 4}, method={"pretrain_epochs": 4})
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    chance = random.Random(0)
    folder, progress = tmp_path / "killed", []
    for _ in range(40):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "recipe.toml"), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        for _ in range(chance.randint(5, 20)):
            if not process.stdout.readline():
                break
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if RunFolder(folder).result():
            break
        if checkpoint := RunFolder(folder).whole_checkpoint():
            load_file(checkpoint)  # whole, whatever the moment
            progress.append(len(RunFolder(folder).log()))
    assert len(progress) >= 2  # it was killed in earnest
    assert progress == sorted(progress)
    train(recipe, 0, Machine(device="cpu"), folder)
    train(recipe, 0, Machine(device="cpu"), tmp_path / "whole")
    assert values(folder) == values(tmp_path / "whole")
    assert same_network(folder, tmp_path / "whole")
    assert (folder / "record.npz").read_bytes() == (tmp_path / "whole" / "record.npz").read_bytes()
