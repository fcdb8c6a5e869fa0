"""`CompiledEval`: forward passes without gradients, for scoring."""

import logging

import torch
from torch import Tensor, nn

from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse.training.compile_once import compile_once, compiling, is_compiler_error
from hypersparse.training.loaders import EvalLoader, Images
from hypersparse.training.machine import Machine

log = logging.getLogger("hypersparse")


class CompiledEval:
    """Runs the network, compiled for full batches with the engine cudagraph, and eagerly for other batches.

    Scoring 50 000 images of CIFAR-10 in bf16 on an H200 takes 0.14 s compiled and 0.36 s eagerly (ResNet-32).
    """

    def __init__(self, model: nn.Module, machine: Machine) -> None:
        self._model, self._machine = model, machine
        self._wanted = machine.captures()
        self._size = 0  # of the batches it is compiled for
        self._compiled = compile_once(_outputs, model) if self._wanted else _outputs

    def run(self, model: nn.Module, images: Tensor) -> Tensor:
        """The outputs of `model`, the network of the run or another one."""
        scored = not (model.training or torch.is_grad_enabled())  # as compiled
        if not (scored and model is self._model and len(images) == self._size):
            return _outputs(model, images)
        return self._compiled(model, images)

    def prepare(self, images: Images) -> None:
        """Compile for full batches, before concurrent runs use the device."""
        clean = [part for part in (images.scoring, images.test) if isinstance(part, EvalLoader)]
        full = next((part for part in clean if len(part.labels) >= part.batch_size), None)
        if not self._wanted or full is None:
            return
        batch, _ = next(iter(full))
        try:
            with torch.no_grad(), eval_mode(self._model), self._machine.autocast(), compiling():
                self._compiled(self._model, batch)
            self._size = full.batch_size
        except Exception as error:
            if not (isinstance(error, RuntimeError) or is_compiler_error(error)):
                raise
            log.warning("Images are scored eagerly, since that cannot be compiled: %s", str(error).splitlines()[0])


def _outputs(model: nn.Module, images: Tensor) -> Tensor:
    outputs: Tensor = model(images)
    return outputs
