import subprocess
import sys

import pytest
import torch

from hypersparse.errors import OptionError
from hypersparse.training.machine import Machine


def test_switches_are_put_back() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with Machine(device="cpu", threads=1, deterministic=True).active():
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_evaluating_does_not_import_the_compiler() -> None:
    """It would take two seconds."""
    program = (
        "import sys; from hypersparse.training.machine import Machine\n"
        "with Machine(device='cpu').active(): print('torch._inductor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_device_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(OptionError, match=r"cuda:97.*use `--device cpu`"):
        Machine(device="cuda:97").torch_device()
    with pytest.raises(OptionError, match="cpu, cuda or cuda:N"):
        Machine(device="gpu0").torch_device()
    with pytest.raises(OptionError, match="`precision` should be 'fp32', 'tf32' or 'bf16'"):
        Machine(precision="fp8")  # type: ignore[arg-type]


def test_fused_kernels_in_another_precision_are_refused() -> None:
    with pytest.raises(OptionError, match="add `--precision bf16`, or use `--engine cudagraph`"):
        Machine(device="cpu", engine="fused").chosen_engine()
    assert Machine(device="cpu", engine="fused", precision="bf16").chosen_engine() == "eager"
