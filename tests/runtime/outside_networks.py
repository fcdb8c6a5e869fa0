"""Runs networks of other packages in every format without PyTorch, and writes what became of each.

    nice python -m tests.runtime.outside_networks --cifar FOLDER --out benchmarks/2026-11-19-architectures.json

FOLDER is a checkout of kuangliu/pytorch-cifar. timm, transformers, Node and gcc are needed. Weights are random; 97 % of
them are zero, and half of them in small networks. A row has the largest difference from PyTorch in double precision,
relative to the largest output, or the sentence of a refusal. Rows that the file already has are kept.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hypersparse.errors import HypersparseError
from hypersparse.export.sparse_file import save_sparse
from hypersparse.export.trace import trace
from hypersparse.export.web.package import write_package
from hypersparse_runtime import SparseModel
from hypersparse_runtime.container import FileError
from hypersparse_runtime.graph import Graph, GraphError
from tests.export.compiled_c import predicted
from tests.export.web.node import run_in_node
from tests.runtime.networks import sparse_

SPARSITY, SMALL_SPARSITY, IMAGES = 0.97, 0.5, 2
FEW_WEIGHTS = 10**6  # up to which half of the weights stay: layers of few inputs would lose them all
FORMATS = {"runtime": "sparse runtime", "browser": "browser", "c": "C source"}
CLOSE = {"runtime": 1e-5, "browser": 1e-4, "c": 1e-4}  # differences that count as none
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CIFAR = {
    "VGG19": "VGG('VGG19')",
    "ShuffleNetV2": "ShuffleNetV2(1)",
    **{
        name: f"{name}()"
        for name in (
            *("ResNet18", "PreActResNet18", "GoogLeNet", "DenseNet121", "ResNeXt29_2x64d", "MobileNet", "MobileNetV2"),
            *("DPN26", "DPN92", "ShuffleNetG2", "SENet18", "EfficientNetB0", "RegNetX_200MF", "RegNetY_400MF"),
            *("SimpleDLA", "DLA", "PNASNetA", "LeNet"),
        )
    },
}
TIMM = {
    **dict.fromkeys(
        (
            *("efficientnet_b0", "efficientnet_lite0", "tf_efficientnetv2_b0", "mobilenetv2_050", "ghostnet_050"),
            *("mobilenetv3_small_050", "mnasnet_small", "lcnet_050", "rexnet_100", "regnety_002", "resnet18"),
            *("seresnet18", "resnetv2_50", "densenet121", "hrnet_w18_small", "convnext_atto", "convnextv2_atto"),
        ),
        96,
    ),
    **dict.fromkeys(
        ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mixer_s32_224"), 224
    ),
}


@dataclass(frozen=True)
class Network:
    """A network of a package and its inputs; `words` of a table, if they are token numbers."""

    package: str
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int = 0


@dataclass
class Row:
    """What became of a network in each format: a difference, or a sentence."""

    package: str
    name: str
    shape: tuple[int, ...]
    weights: int = 0
    results: dict[str, Any] = field(default_factory=dict)


class Logits(nn.Module):
    """The logits or the last state of a model of Transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        made = self.model(x)
        found: Tensor = made.logits if "logits" in made else made.last_hidden_state
        return found


def networks(cifar: Path) -> Iterator[Network]:
    """Every network of the test set."""
    sys.path.insert(0, str(cifar))
    for name, call in CIFAR.items():
        yield Network("kuangliu/pytorch-cifar", name, partial(_of_cifar, call), (3, 32, 32))
    for name, side in TIMM.items():
        yield Network(f"timm {version('timm')}", name, partial(_of_timm, name), (3, side, side))
    package = f"transformers {version('transformers')}, small configurations"
    vit = {**SMALL, "image_size": 32, "patch_size": 8, "num_labels": 10}
    yield Network(package, "ViTForImageClassification", partial(_of_transformers, "ViT", vit), (3, 32, 32))
    words = {**SMALL, "vocab_size": 100, "max_position_embeddings": 16}
    gpt = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 16, "vocab_size": 100}
    distil = {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 64,
        "vocab_size": 100,
        "max_position_embeddings": 16,
    }
    for name, config in (
        ("BertForSequenceClassification", words),
        ("BertModel", words),
        ("DistilBertForSequenceClassification", distil),
        ("GPT2LMHeadModel", gpt),
    ):
        kind = name.partition("For")[0].removesuffix("Model").removesuffix("LMHead")
        yield Network(package, name, partial(_of_transformers, kind, config, name), (12,), 100)


def _of_cifar(call: str) -> nn.Module:
    name, _, argument = call.partition("(")
    given = argument.rstrip(")").strip("'")
    build = getattr(import_module("models"), name)
    made: nn.Module = build(int(given) if given.isdigit() else given) if given else build()
    return made


def _of_timm(name: str) -> nn.Module:
    made: nn.Module = import_module("timm").create_model(name)
    return made


def _of_transformers(kind: str, config: Mapping[str, Any], name: str = "ViTForImageClassification") -> nn.Module:
    package = import_module("transformers")
    return Logits(getattr(package, name)(getattr(package, f"{kind}Config")(**config)))


def row_of(network: Network, package: Path) -> Row:
    """Build, thin out and run a network."""
    torch.manual_seed(0)
    row = Row(network.package, network.name, network.shape)
    try:
        model = network.build()
    except Exception as error:  # of the package's own code
        row.results = dict.fromkeys(FORMATS, f"cannot be built: {type(error).__name__}")
        return row
    row.weights = sum(parameter.numel() for parameter in model.parameters())
    for weight in (each for each in model.parameters() if each.dim() > 1 and not each.any()):
        nn.init.normal_(weight)  # timm's classifiers of Mixer begin with zeros
    sparse_(model, SMALL_SPARSITY if row.weights <= FEW_WEIGHTS else SPARSITY)
    with torch.no_grad():
        for weight in (each for each in model.parameters() if each.dim() > 1):
            weight.mul_(
                2 * len(weight) ** 0.5 / weight.norm().clamp(min=1e-6)
            )  # else little of the input is left in the end
        for norm in (each for each in model.modules() if isinstance(each, nn.BatchNorm2d)):
            norm.weight.add_(1)
    inputs = torch.randn(IMAGES, *network.shape)
    inputs = torch.randint(0, network.words, inputs.shape) if network.words else inputs
    with torch.no_grad():
        wanted = deepcopy(model).double()(inputs if network.words else inputs.double()).numpy()
    dtype = torch.int64 if network.words else None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.hsp"
        try:
            save_sparse(model, file, input_shape=network.shape, input_dtype=dtype)
            graph = trace(model, network.shape, input_dtype=dtype)
        except (HypersparseError, GraphError, FileError) as error:
            row.results = dict.fromkeys(FORMATS, str(error))
            return row
        for name in FORMATS:
            try:
                found = RUNNERS[name](graph, file, inputs, package)
                row.results[name] = float(np.abs(found - wanted.reshape(found.shape)).max() / np.abs(wanted).max())
            except (HypersparseError, GraphError, FileError, RefusedError) as error:
                row.results[name] = str(error)
    return row


class RefusedError(Exception):
    """The sentence of the JavaScript runtime."""


def _natively(graph: Graph, file: Path, inputs: Tensor, package: Path) -> Any:
    return SparseModel.load(file, engine="hypersparse", threads=1)(inputs.numpy())


def _in_node(graph: Graph, file: Path, inputs: Tensor, package: Path) -> Any:
    (answer,) = run_in_node(package, [(file, inputs.numpy().astype(np.float32))])
    if "error" in answer:
        raise RefusedError(answer["sentence"])
    return answer["outputs"].reshape(len(inputs), -1)


def _in_c(graph: Graph, file: Path, inputs: Tensor, package: Path) -> Any:
    made = predicted(graph, inputs.float(), file.parent)
    return made.reshape(len(inputs), -1)


RUNNERS: Mapping[str, Callable[[Graph, Path, Tensor, Path], Any]] = {
    "runtime": _natively,
    "browser": _in_node,
    "c": _in_c,
}


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tables of docs/architectures.md: for each package its networks, and what each format makes of them."""
    lines = [f"| package | network | {' | '.join(FORMATS.values())} |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = [described(row["results"][name], CLOSE[name]) for name in FORMATS]
        lines.append(f"| {row['package']} | {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def described(result: float | str, close: float) -> str:
    """A result in words; of a refusal the operation."""
    if isinstance(result, str):
        return f"`{result.split('`')[1]}`" if "`" in result else result
    return "works" if result <= close else f"differs by {result:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cifar", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="a part of the names")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        package = write_package(folder)
        known = {(row["package"], row["name"]) for row in rows}
        for network in networks(options.cifar):
            if (network.package, network.name) in known or (options.only or "") not in network.name:
                continue
            row = row_of(network, package)
            print(row, flush=True)
            rows.append(vars(row))
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
