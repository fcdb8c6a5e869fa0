"""Milliseconds of a training step by engine and phase, on random images of CIFAR-10's size.

python benchmarks/step_times.py --models resnet32,vgg19 --engines eager,captured --precision bf16
"""

import argparse
import tempfile
import time
import warnings

import torch

from hypersparse.data.dataset import Dataset, Split
from hypersparse.recipe import resolve
from hypersparse.training.folder import RunFolder
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine

STEPS_AN_EPOCH = 781


def random_images(count: int, generator: torch.Generator) -> Split:
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Split(images, torch.randint(0, 10, (count,), generator=generator))


def seconds_of(training: Training, steps: int) -> float:
    step = training.step_of_phase()
    for number in range(10):
        step(number)
    wait = torch.cuda.synchronize if training.sparsifier.weights.device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    for number in range(steps):
        step(number)
    wait()
    return (time.perf_counter() - began) / steps


def measure(model: str, machine: Machine, dataset: Dataset, steps: int) -> None:
    method = {"sparsity": 0.98, "pretrain_epochs": 1, "max_regularized_epochs": 1}
    recipe = resolve({"data": {"name": "cifar10"}, "model": {"name": model}, "method": method})
    with machine.active() as device, tempfile.TemporaryDirectory() as folder:
        training = Training(recipe, 0, machine, device, dataset, RunFolder(folder))
        sparsifier = training.sparsifier
        for _ in range(len(sparsifier.plan)):
            sparsifier.begin_epoch()
            training.model.train()
            began = time.perf_counter()
            training.step_of_phase()
            built = time.perf_counter() - began
            seconds = seconds_of(training, steps)
            row = [model, machine.precision, machine.chosen_engine(), sparsifier.phase.name]
            print(*row, f"{1e3 * seconds:.2f} ms", f"{seconds * STEPS_AN_EPOCH:.2f} s/epoch", f"built in {built:.1f} s")
            if not sparsifier.mask:
                with machine.autocast():
                    sparsifier.finish_epoch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet32,vgg19")
    parser.add_argument("--engines", default="eager,captured")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(0)
    train, test = random_images(50_000, generator), random_images(10_000, generator)
    dataset = Dataset("random", train, test, tuple("0123456789"), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    for model in chosen.models.split(","):
        for engine in chosen.engines.split(","):
            machine = Machine(device=chosen.device, precision=chosen.precision, engine=engine)
            measure(model, machine, dataset, chosen.steps)


if __name__ == "__main__":
    main()
