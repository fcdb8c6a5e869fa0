"""C exports built for microcontrollers and run in QEMU: their outputs, flash, RAM and instructions.

An image of a firmware is the network, start-up code and a main program that prints. Test images lie in a memory of
their own, which is not counted. Instructions are those that QEMU executes (`-icount shift=0`), no cycles: QEMU knows
neither pipelines nor wait states.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hypersparse import data, zoo
from hypersparse.errors import OptionError
from hypersparse.export import integer_reference
from hypersparse.export.c_source import save_c
from hypersparse.export.calibration import SHARE, calibrate, training_images
from hypersparse.export.graph_module import to_module
from hypersparse.export.quantization import quantize
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse.export.shrink import shrink_graph
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.trained_model import TrainedModel
from hypersparse.export.verify import PredictionCheck
from hypersparse.recipe import Recipe
from hypersparse_runtime.graph import INPUT, Graph
from tests.export.compiled_c import compiled

FIRMWARE = Path(__file__).with_name("firmware")
NETWORK = "network"
KIB = 1024
SMALL_FLASH, SMALL_RAM = 256 * KIB, 128 * KIB
FLOATS = ("float32", "float32")  # of input and output
WIDE = 4096 * KIB  # what QEMU's machines have of either
PACKAGES = (  # Debian's
    "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf "
    "qemu-system-misc"
)
SECONDS = 300
TEST_IMAGES = 1000  # of which accuracies are, by the same source compiled for this machine
RUN_IMAGES = 3  # that are run in QEMU
MOST_APART = 1e-5  # of the largest output: fp32 in another order of summation

Row = dict[str, Any]


class TooLargeError(RuntimeError):
    """A firmware that is larger than the memories it was given."""


@dataclass(frozen=True)
class Target:
    """A processor, its compiler and the machine of QEMU that has it."""

    name: str
    tools: str  # before `gcc` and `size`
    flags: tuple[str, ...]
    flags_of_floats: tuple[str, ...]  # for fp32, where the processor has an FPU
    qemu: tuple[str, ...]
    start: str  # file of its start-up code
    origins: tuple[int, int, int]  # of flash, RAM and the test images
    c_library: tuple[str, ...] = ()  # flags that select it, for networks that call its mathematics

    def missing_tools(self) -> list[str]:
        """Programs that it needs and that are not installed."""
        return [tool for tool in (f"{self.tools}gcc", f"{self.tools}size", self.qemu[0]) if shutil.which(tool) is None]


def _cortex(name: str, fpu: str, machine: str, images: int) -> Target:
    flags = (f"-mcpu={name}", "-mthumb", f"-mfpu={fpu}", "-mfloat-abi=hard")
    qemu = ("qemu-system-arm", "-M", machine)
    return Target(name, "arm-none-eabi-", flags, flags, qemu, "cortex_m.c", (0, 0x2000_0000, images))


TARGETS = (
    _cortex("cortex-m4", "fpv4-sp-d16", "mps2-an386", 0x2100_0000),
    _cortex("cortex-m7", "fpv5-sp-d16", "mps2-an500", 0x6000_0000),
    Target(
        "rv32",
        "riscv64-unknown-elf-",
        ("-march=rv32imac", "-mabi=ilp32", "-msmall-data-limit=0"),
        ("-march=rv32imafc", "-mabi=ilp32f", "-msmall-data-limit=0"),
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        "riscv32.c",
        (0x8000_0000, 0x8040_0000, 0x8100_0000),
        ("--specs=picolibc.specs",),
    ),
)


@dataclass(frozen=True, eq=False)
class Measured:
    """A network on a processor. RAM has the arena, one input, one output and the deepest stack."""

    flash: int
    ram: int
    stack: int
    arena: int
    instructions: float  # of one image, the mean
    outputs: NDArray[np.generic]


def measure(
    network: Graph | QuantizedGraph,
    images: NDArray[np.generic],
    target: Target,
    folder: Path,
    *,
    optimization: str = "-O2",
    flash: int = WIDE,
    ram: int = WIDE,
) -> Measured:
    """Build a firmware of a network and run it on images of its input type, within so many bytes of flash and RAM."""
    if missing := target.missing_tools():
        raise OptionError(f"{missing[0]} is not installed; Debian has it in one of {PACKAGES}.")
    is_float = isinstance(network, Graph)
    kinds = ("int8", network.values[network.output].dtype) if isinstance(network, QuantizedGraph) else FLOATS
    save_c(network, folder / f"{NETWORK}.c")
    (folder / "images.c").write_text(_images_text(images.astype(kinds[0])))
    origins = [f"{name} : ORIGIN = {at}, LENGTH = {size}" for name, at, size in
               zip(("FLASH", "RAM", "IMAGES"), target.origins, (flash, ram, WIDE), strict=True)]  # fmt: skip
    (folder / "firmware.ld").write_text(f"MEMORY {{ {' '.join(origins)} }}\nINCLUDE {FIRMWARE / 'memory.ld'}\n")
    types = [f"-Dinput_t={_c_type(kinds[0])}", f"-Doutput_t={_c_type(kinds[1])}", f"-DIMAGES={len(images)}"]
    flags = target.flags_of_floats if is_float else target.flags
    calls_library = "#include <math.h>" in (folder / f"{NETWORK}.c").read_text()
    flags, libraries = (flags + target.c_library, ("-lm", "-lc")) if calls_library else (flags, ())
    sources = [FIRMWARE / "main.c", FIRMWARE / target.start, folder / f"{NETWORK}.c", folder / "images.c"]
    _run(
        [f"{target.tools}gcc", *flags, "-std=gnu99", optimization, "-Wall", "-Wextra", "-ffreestanding", "-nostdlib",
         "-ffunction-sections", "-fdata-sections", "-fno-tree-loop-distribute-patterns", "-Wl,--gc-sections",
         *types, f"-I{folder}", f"-I{FIRMWARE}",
         "-T", str(folder / "firmware.ld"), *map(str, sources), *libraries, "-lgcc", "-o", str(folder / "firmware.elf")]
    )  # fmt: skip
    sizes = _section_sizes(_run([f"{target.tools}size", "-A", str(folder / "firmware.elf")]))
    text = _run(
        [*target.qemu, "-nographic", "-icount", "shift=0", "-semihosting-config", "enable=on,target=native",
         "-kernel", str(folder / "firmware.elf")]
    )  # fmt: skip
    took, stacks, outputs = _understood(text, kinds[1])
    if len(took) != len(images):
        raise RuntimeError(f"{target.name} stopped after {len(took)} of {len(images)} images.")
    stack = max(stacks)
    data, bss = sizes.get(".data", 0), sizes.get(".bss", 0)
    arena = bss - images[0].size * np.dtype(kinds[0]).itemsize - outputs[0].nbytes
    return Measured(sizes[".text"] + data, data + bss + stack, stack, arena, float(np.mean(took)), outputs)


def _run(command: Sequence[str]) -> str:
    """What a program printed, on either stream: semihosting writes to the error output."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if "overflowed by" in done.stdout:
        raise TooLargeError(done.stdout)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout[-2000:]}")
    return done.stdout


def _section_sizes(text: str) -> dict[str, int]:
    """Of what `size -A` prints.

    >>> _section_sizes(".text   12   0\\n.bss  8  536870912\\nTotal 20")
    {'.text': 12, '.bss': 8}
    """
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[0].startswith(".")}


def _understood(text: str, kind: str) -> tuple[list[int], list[int], NDArray[np.generic]]:
    """Instructions, stacks and outputs of each image; numbers are printed as 8 hexadecimal digits.

    >>> _understood("0000000a 00000010 0000ffff 00000002\\n", "int16")
    ([10], [16], array([[-1,  2]], dtype=int16))
    """
    words = np.array([[int(word, 16) for word in line.split()] for line in text.splitlines()], "<u4")
    words = words.reshape(len(words), -1)
    width = np.dtype(kind).itemsize
    outputs = np.ascontiguousarray(words[:, 2:]).view(np.uint8).reshape(len(words), -1, 4)[:, :, :width]
    return words[:, 0].tolist(), words[:, 1].tolist(), np.ascontiguousarray(outputs).view(kind)[:, :, 0]


def _c_type(kind: str) -> str:
    return "float" if kind == "float32" else f"{kind}_t"


def _images_text(images: NDArray[np.generic]) -> str:
    kind = _c_type(str(images.dtype))
    rows = ",\n".join("{" + ", ".join(map(repr, image.ravel().tolist())) + "}" for image in images)
    size = f"[{len(images)}][{images[0].size}]"
    return f'#include <stdint.h>\n__attribute__((section(".images"))) const {kind} images{size} = {{\n{rows}\n}};\n'


def measure_zoo(
    names: Sequence[str], targets: Sequence[Target], folders: Sequence[Path], ended: Callable[[Row], None]
) -> list[Row]:
    """A row for each network of the zoo, arithmetic and processor. Other outputs than expected are errors."""
    rows = []
    for name in names:
        graph, trained = _trained(name, folders)
        check = PredictionCheck(trained, TEST_IMAGES)
        small = shrink_graph(graph, planes=False).graph
        quantized = quantize(small, calibrate(small, training_images(trained.dataset), share=SHARE))
        images = _some(check)
        networks: tuple[tuple[Graph | QuantizedGraph, str], ...] = ((small, "fp32"), (quantized, "int8"))
        for network, arithmetic in networks:
            facts = {"name": name, "arithmetic": arithmetic, "kept": _kept(small), **_accuracy(network, check)}
            for target in targets:
                rows.append({**facts, "processor": target.name, **_measured(network, images, target)})
                ended(rows[-1])
    return rows


def _trained(name: str, folders: Sequence[Path]) -> tuple[Graph, TrainedModel]:
    path = zoo.path_of(name)
    graph = load_graph(path)
    recipe = Recipe.from_toml(str(graph.about["recipe"]), stored=True)
    return graph, TrainedModel(path, to_module(graph), recipe, data.load(recipe.data.name, folders))


def _accuracy(network: Graph | QuantizedGraph, check: PredictionCheck) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        run = compiled(network, Path(folder))

        def predict(images: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(run(_given(network, images)))

        return {"accuracy": check.accuracy(predict), "test_images": check.count}


def _given(network: Graph | QuantizedGraph, images: torch.Tensor) -> torch.Tensor:
    """Images in the network's own type."""
    return images if isinstance(network, Graph) else integer_reference.to_integers(images, network.values[INPUT])


def _some(check: PredictionCheck) -> torch.Tensor:
    images, _ = next(iter(check.batches))
    return images[:: len(images) // RUN_IMAGES][:RUN_IMAGES]


def _kept(graph: Graph) -> int:
    return sum(int((graph.tensors[node.tensors["weight"]] != 0).sum()) for node in graph.nodes if node.weighted)


def _measured(network: Graph | QuantizedGraph, images: torch.Tensor, target: Target) -> Row:
    given = _given(network, images)
    if isinstance(network, QuantizedGraph):
        expected = integer_reference.run(network, images).numpy()
    else:
        with torch.no_grad():
            expected = to_module(network)(images).numpy()
    found, fits = _within(network, given.numpy(), target)
    apart = float(np.abs(found.outputs.astype(np.float64) - expected).max() / np.abs(expected).max())
    if apart > (0.0 if isinstance(network, QuantizedGraph) else MOST_APART):
        raise RuntimeError(f"{target.name} computes other outputs: {apart:.3g} of the largest apart.")
    sizes = {name: getattr(found, name) for name in ("flash", "ram", "arena", "stack", "instructions")}
    return {**sizes, "fits_256k_128k": fits, "largest_difference": apart}


def _within(network: Graph | QuantizedGraph, images: NDArray[np.generic], target: Target) -> tuple[Measured, bool]:
    """Built and run within the small part's memory, or else the machine's."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = measure(network, images, target, Path(folder), flash=SMALL_FLASH, ram=SMALL_RAM)
            if found.ram <= SMALL_RAM:
                return found, True
        except TooLargeError:
            pass
        return measure(network, images, target, Path(folder)), False
