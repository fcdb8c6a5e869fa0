"""Hostile files of every kind that the package reads, in one folder."""

import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.numpy import save_file
from torch import nn

from hypersparse import Magnitude, Sparsifier, attach, models
from hypersparse.distributed.checkpoint import save_checkpoint
from hypersparse.export.sparse_file import save_sparse
from hypersparse.runs.store import RunStore
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import save_weights
from tests.analysis.small import write as write_run
from tests.hostile.hook import MARK
from tests.runtime.renamed import renamed

PAYLOAD = "import os\nos.system('touch started')\n"
TEXT = f"{MARK}</script><img src=x onerror=alert(1)> $\\input{{x}}$ '\"; import {MARK} #"
CONTROL = f"{MARK}</script><img src=x onerror=alert(1)>\r\n$\\input{{x}}$\x1b]0;{MARK}\x07'\"; import {MARK} #"
ESCAPE = f'a")\rimport {MARK}\rdef g(self, x):#.weight'
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(hs_payload) run\n%%EOF\n"
MODELS = {"foreign": f"{MARK}:net", "python": "os:system", "ours": "resnet8"}


class Start:
    """Starts a program when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch started {MARK}",)


def make(folder: Path) -> None:
    """Everything below `folder`, and modules that are only there to be imported."""
    for name in (MARK, "sitecustomize", "torch_backend"):
        (folder / f"{name}.py").write_text(PAYLOAD)
    (folder / "matplotlibrc").write_text(f"text.usetex: True\nbackend: module://{MARK}\n")
    for part in (_networks, _runs, _packs, _recipes, _arrays, _pickles, _images, _zoo, _transformers, _shards, _search):
        part(folder)


def _networks(folder: Path) -> None:
    for part in ("array", "op", "role", "option"):
        renamed(folder / f"{part}.hsp", ESCAPE, part=part)
    about = {"classes": [f"{TEXT}{number}" for number in range(10)], "recipe": recipe(MODELS["foreign"])}
    about |= {"normalisation": {"scale": 255, "mean": [0.5], "std": [0.5]}, "profile": TEXT, "values": TEXT}
    about |= {"provenance": {"file": TEXT, TEXT: TEXT}, TEXT: TEXT}
    save_sparse(_model(), folder / "strings.hsp", input_shape=(1, 8, 8), about=about)


def recipe(model: str, method: str = f"{MARK}:Method") -> str:
    """A whole recipe that names code."""
    return (
        "seed = 0\n[data]\nname = 'digits'\n"
        f"[model]\nname = '{model}'\ncommand = 'touch started {MARK}'\n"
        f"[training]\nepochs = 1\n[method]\nname = '{method}'\nsparsity = 0.9\nforce = {json.dumps(TEXT)}\n"
    )


def _runs(folder: Path) -> None:
    for name, model in MODELS.items():
        made = write_run(folder / "made" / name).folder
        target = folder / "runs" / f"{name}-12345678" / "seed-0"
        target.parent.mkdir(parents=True)
        made.path.rename(target)
        run = RunFolder(target)
        text = recipe(model).replace(f"command = 'touch started {MARK}'", "width = 2")
        run.recipe_file.write_text(text)
        result = json.loads(run.result_file.read_text())
        strange = {"label": TEXT, "data": TEXT, "model": TEXT, "method": TEXT, "classes": [TEXT] * 2}
        run.result_file.write_text(json.dumps(result | strange))
        save_weights(run.final_file, PrunableWeights(_model()), {"recipe": text, TEXT: TEXT})
        (target / "wandb.json").write_text(json.dumps({"project": TEXT, "epochs": 1}))
        (target / "positions.csv").write_text(f"{TEXT}\n=cmd|{MARK}\n")
    damaged = RunStore(folder / "damaged").root / "x-12345678" / "seed-0"
    damaged.mkdir(parents=True)
    (damaged / "recipe.toml").write_text(recipe("os:system"))
    np.savez(damaged / "record.npz", phase=np.array([Start()], object))
    save_file(
        {"a": np.zeros(1)}, damaged / "checkpoint.safetensors", {"hypersparse_state": json.dumps({CONTROL: CONTROL})}
    )
    save_file({"a": np.zeros(1)}, folder / "mask.safetensors", {"hypersparse_mask": json.dumps({CONTROL: [1]})})
    for name in ("log.jsonl", "timing.jsonl", "state.json"):
        (damaged / name).write_text(json.dumps({"phase": CONTROL, "epoch": CONTROL}) + "\n")


def _packs(folder: Path) -> None:
    files = {"recipe.toml": recipe(MODELS["foreign"]).encode(), "log.jsonl": b""}
    _pack(folder / "pack-of-names", files)
    _pack(folder / "pack-of-code", {**files, f"{MARK}.py": PAYLOAD.encode()})
    _pack(folder / "pack-outside", {**files, f"../../../{MARK}.py": PAYLOAD.encode()})


def _pack(file: Path, files: dict[str, bytes]) -> None:
    inside = {f"a-12345678/seed-0/{name}": content for name, content in files.items()}
    index = {name: hashlib.sha256(content).hexdigest() for name, content in inside.items()}
    with tarfile.open(file, mode="w") as tar:
        for name, content in {**inside, "index.json": json.dumps(index).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def _recipes(folder: Path) -> None:
    (folder / "foreign.toml").write_text(recipe(MODELS["foreign"]))
    (folder / "python.toml").write_text(recipe("os:system", "art").replace("force", "growth"))
    (folder / "trusting.toml").write_text(f'own_code = ["{MARK}:net"]\n{recipe(MODELS["foreign"])}')
    grid = f'data = "digits"\nmodel = "{MARK}:net"\nmethod = ["{MARK}:Method"]\nsparsity = 0.9\n'
    (folder / "experiment.toml").write_text(f"title = {json.dumps(TEXT)}\n[[grid]]\n{grid}")


def _arrays(folder: Path) -> None:
    hostile = np.array([Start()], object)
    np.savez(folder / "arrays.npz", x_train=hostile, y_train=hostile, x_test=hostile, y_test=hostile)


def _pickles(folder: Path) -> None:
    (folder / "batch").write_bytes(pickle.dumps({b"data": Start()}, protocol=2))
    for zipped in (True, False):
        for end in ("pt", "pth.tar"):
            torch.save({"weight": Start()}, folder / f"weights-{zipped}.{end}", _use_new_zipfile_serialization=zipped)
    for name in ("sharded-table", "sharded-entry"):
        save_checkpoint(folder / name, attached(), others={"scheduler": {"lr": Start()}})
    (folder / "sharded-table" / ".metadata").write_bytes(pickle.dumps({"data": Start()}))


def attached() -> Sparsifier:
    """A training whose checkpoint is read."""
    model = nn.Linear(4, 4)
    return attach(model, torch.optim.SGD(model.parameters(), lr=0.1), Magnitude(sparsity=0.5), epochs=1)


def _images(folder: Path) -> None:
    for part in ("train", "val"):
        place = folder / "images" / part / "a"
        place.mkdir(parents=True)
        Image.new("L", (8, 8)).save(place / "a.png")
    (folder / "images" / "train" / "a" / "z.png").write_bytes(EPS)
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        for name in ("train/n01/images/a.JPEG", "val/n01/images/a.JPEG", f"../{MARK}.py"):
            archive.writestr(f"tiny-imagenet-200/{name}", EPS)
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        member.size = len(content := pickle.dumps({b"data": Start()}, protocol=2))
        tar.addfile(member, io.BytesIO(content))


def _search(folder: Path) -> None:
    (folder / "search").mkdir()
    study = {"op_code": 0, "worker_id": TEXT, "study_name": "tune", "directions": [2]}
    told = {"op_code": 2, "worker_id": TEXT, "study_id": 0, "user_attr": {"recipe": TEXT, "space": [TEXT]}}
    (folder / "search" / "trials.jsonl").write_text(f"{json.dumps(study)}\n{json.dumps(told)}\n")


def _zoo(folder: Path) -> None:
    zoo = folder / "zoo"
    zoo.mkdir()
    (zoo / "a.hsp").write_bytes((folder / "strings.hsp").read_bytes())
    words = dict.fromkeys(("data", "model", "recipe", "best_picked_on"), TEXT)
    shares = dict.fromkeys(("sparsity", "last", "best", "test_accuracy"), 0.5)
    counts = dict.fromkeys(("seed", "kept", "total", "test_images"), 1)
    words["best_picked_on"] = CONTROL
    facts = {**words, **shares, **counts, "inputs": "inputs.npy", "logits": [[0.0]]}
    (zoo / "a.json").write_text(json.dumps(facts))
    np.save(zoo / "inputs.npy", np.array([Start()], object), allow_pickle=True)


def _transformers(folder: Path) -> None:
    size = {"vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    classes = ("BertForSequenceClassification", "AutoModelForSequenceClassification")
    code = {"auto_map": {"AutoConfig": f"{MARK}.Config", **dict.fromkeys(classes, f"{MARK}.Model")}}
    adapter = {"peft_type": "LORA", "megatron_config": {}, "megatron_core": MARK, "target_modules": ["query"]}
    mapped = {"base_model_class": MARK, "parent_library": MARK}
    for name in ("adapted", "dense"):
        (place := folder / name).mkdir()
        (place / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": [MARK], **size, **code}))
        (place / f"{MARK}.py").write_text(PAYLOAD)
    (folder / "adapted" / "adapter_config.json").write_text(json.dumps({**adapter, "auto_mapping": mapped}))
    save_file({"a": np.zeros(1)}, folder / "adapted" / "sparse.safetensors")
    torch.save({"weight": Start()}, folder / "dense" / "pytorch_model.bin")
    shutil.copytree(folder / "dense", folder / "elsewhere")  # adapters of a model on the Hub
    elsewhere = {"peft_type": "LORA", "base_model_name_or_path": f"{MARK}/model", "target_modules": ["query"]}
    (folder / "elsewhere" / "adapter_config.json").write_text(json.dumps(elsewhere))


def _shards(folder: Path) -> None:
    for name in ("shards", "arrow", "parquet"):
        (folder / name).mkdir()
    for part in ("train", "val"):
        with tarfile.open(folder / "shards" / f"{part}.tar", "w", pax_headers={"comment": TEXT}) as tar:
            for name, content in (("../1.jpg", EPS), ("../1.cls", b"0"), ("2.pkl", pickle.dumps(Start()))):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        kinds = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": [TEXT], "id": f"{MARK}:x"}}
        features = {b"huggingface": json.dumps({"info": {"features": kinds}}).encode(), b"ARROW:extension:name": b"x"}
        images = [{"bytes": EPS, "path": f"{MARK}.py"}, {"bytes": pickle.dumps(Start()), "path": "| touch started"}]
        rows = pa.table({"image": images, "label": [0, 0]}).replace_schema_metadata(features)
        pq.write_table(rows, folder / "parquet" / f"{part}.parquet")
        with (folder / "arrow" / f"{part}.arrow").open("wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)


def _model() -> nn.Module:
    make_model: Callable[..., nn.Module] = models.build
    return make_model("resnet8", shape=(1, 8, 8), classes=10, options={"width": 2}).eval()
