"""Every reader of the package, and which of its files each of them stands for."""

import importlib.util
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType

from hypersparse import data, models, zoo
from hypersparse.data import files, pickles, tiny_imagenet
from hypersparse.distributed.checkpoint import load_checkpoint
from hypersparse.errors import HypersparseError
from hypersparse.export.sparse_file import load_graph, load_sparse
from hypersparse.export.trace import trace
from hypersparse.export.web.page import read_page
from hypersparse.integrations.optuna import Range, Study
from hypersparse.recipe import Recipe
from hypersparse.serve.images import decode
from hypersparse.serve.network import Served
from hypersparse.serve.page import make_page
from hypersparse.sparsity.mask import Mask
from hypersparse.storage.checkpoint import load_outline, load_tree
from hypersparse.storage.record import read_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import load_weights_
from hypersparse_runtime import SparseModel
from tests.cli.commands import run
from tests.hostile.files import attached

Reader = Callable[[Path], object]
RUNS = ("foreign-12345678", "python-12345678", "ours-12345678", "damaged/x-12345678/seed-0")
STUDIES = ("accuracy", "agreement", "classes", "crossing", "layers")
FORMATS = (".hsp", ".onnx", ".c", ".safetensors")
NAMED = ("array", "op", "role", "option")


def command(*words: str) -> Reader:
    """A command in the folder; it ends with 0 or 2, never with an error of Python's."""

    def call(folder: Path) -> None:
        done = run(*words, folder=folder)
        if done.returncode not in (0, 2) or "Traceback" in done.stderr or "No such option" in done.stderr:
            raise AssertionError(f"exit code {done.returncode}: {done.stderr}")

    return call


def call(function: Callable[[Path], object], name: str) -> Reader:
    """A function of the library with one of the files; an error of ours is an answer too."""

    def read(folder: Path) -> None:
        try:
            function(folder / name)
        except (HypersparseError, ValueError):
            return

    return read


def _serve(path: Path) -> None:
    make_page([Served("a", load_graph(path), 1)], 1)


def _run_files(path: Path) -> None:
    for read in (RunFolder.recipe, RunFolder.log, RunFolder.timing, RunFolder.result):
        try:
            read(RunFolder(path))
        except HypersparseError:
            continue


def _cifar(path: Path) -> None:
    files.tar_members(path, ["cifar-10-batches-py/data_batch_1"])
    data.load("cifar10", [path.parent], download=False)


def _pretrained(folder: Path) -> None:
    if not importlib.util.find_spec("transformers"):
        return
    from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

    from hypersparse.integrations.transformers import from_pretrained

    for model_class in (BertForSequenceClassification, AutoModelForSequenceClassification):
        # Transformers' own errors: a damaged file, weights that are a program, and code that is not trusted
        with suppress(OSError, UnpicklingError, ValueError):
            from_pretrained(model_class, folder)


def _sharded(path: Path) -> None:
    load_checkpoint(path, attached(), others={"scheduler": {"lr": 0.0}})


def _search(path: Path) -> None:
    Study(path, [Range.parse("training.lr=0.1..1.0")], Recipe())


def _fill(path: Path) -> None:
    load_weights_(models.build("resnet8", shape=(1, 8, 8), classes=10, options={"width": 2}), path)


READERS: MappingProxyType[str, Reader] = MappingProxyType(
    {
        "runs": command("runs"),
        "runs as JSON": command("runs", "--format", "json"),
        "report": command("report", "-o", "report.html"),
        "report of an experiment": command("report", "experiment.toml"),
        "report of a damaged run": command("report", "damaged/x-12345678/seed-0", "-o", "damaged.html"),
        "paper": command("paper"),
        **{f"show {name}": command("show", name) for name in RUNS},
        **{f"evaluate {name}": command("evaluate", name) for name in RUNS},
        **{f"analyze {name}": command("analyze", name) for name in STUDIES},
        "pack": command("pack", "ours-12345678", "foreign-12345678", "-o", "packed"),
        **{f"unpack {name}": command("unpack", f"pack-{name}") for name in ("of-names", "of-code", "outside")},
        **{f"plan {name}": command("plan", "--recipe", f"{name}.toml") for name in ("foreign", "python", "trusting")},
        **{f"train {name}": command("train", "--recipe", f"{name}.toml") for name in ("foreign", "python", "trusting")},
        "train from weights": command("train", "--init-from", "weights-True.pt"),
        "train from a run": command("train", "--init-from", "python-12345678", "--data", "digits", "--epochs", "1"),
        "train on arrays": command("train", "--data", "arrays.npz"),
        "train on images": command("train", "--data", "images"),
        "sweep": command("sweep", "experiment.toml"),
        "sweep --dry-run": command("sweep", "experiment.toml", "--dry-run"),
        **{f"export a run as {end}": command("export", RUNS[2], "-o", f"run{end}", "--shrink") for end in FORMATS[1:]},
        **{f"export a file as {end}": command("export", "strings.hsp", "-o", f"out{end}") for end in FORMATS},
        **{
            f"export without images {end}": command("export", "strings.hsp", "-o", f"o{end}", "--verify-images", "0")
            for end in FORMATS
        },
        **{
            f"export a name as .onnx, {name}": command("export", f"{name}.hsp", "-o", "o.onnx", "--verify-images", "0")
            for name in NAMED
        },
        "shrink": command("shrink", "strings.hsp", "--verify-images", "0", "-o", "small.hsp"),
        "evaluate a file": command("evaluate", "strings.hsp"),
        "serve a foreign run": command("serve", "foreign-12345678", "--no-browser"),
        **{f"load_sparse {name}": call(lambda path: trace(load_sparse(path), (4,)), f"{name}.hsp") for name in NAMED},
        **{f"the runtime {name}": call(lambda path: SparseModel.load(path), f"{name}.hsp") for name in NAMED},
        "the runtime": call(lambda path: SparseModel.load(path), "strings.hsp"),
        "the page of serve": call(_serve, "strings.hsp"),
        "a page": call(read_page, "strings.hsp"),
        "images that are sent": call(lambda path: decode(path.read_bytes()), "images/train/a/z.png"),
        "a run's files": call(_run_files, "damaged/x-12345678/seed-0"),
        "a record": call(read_record, "damaged/x-12345678/seed-0/record.npz"),
        "a checkpoint": call(load_tree, "damaged/x-12345678/seed-0/checkpoint.safetensors"),
        "a checkpoint's outline": call(load_outline, "damaged/x-12345678/seed-0/checkpoint.safetensors"),
        "a mask": call(Mask.load, "mask.safetensors"),
        **{f"weights {kind}": call(_fill, f"weights-{kind}.pt") for kind in (True, False)},
        **{f"weights of the authors' code {kind}": call(_fill, f"weights-{kind}.pth.tar") for kind in (True, False)},
        "weights of a run": call(_fill, "runs/foreign-12345678/seed-0"),
        "a pickle": call(lambda path: pickles.read_pickle(path.read_bytes(), "batch"), "batch"),
        **{f"a sharded checkpoint's {part}": call(_sharded, f"sharded-{part}") for part in ("table", "entry")},
        "an archive of CIFAR": call(_cifar, "cifar-10-python.tar.gz"),
        "an archive of TinyImageNet": call(lambda path: tiny_imagenet.load([path.parent]), "tiny-imagenet-200.zip"),
        **{f"a model of Transformers {name}": call(_pretrained, name) for name in ("adapted", "dense", "elsewhere")},
        "arrays": call(lambda path: data.load(str(path)), "arrays.npz"),
        "shards of WebDataset": call(lambda path: data.load(str(path)), "shards"),
        **{
            f"a folder of {kind} files": call(lambda path: data.load(str(path), [path.parent / "cache"]), kind)
            for kind in ("arrow", "parquet")
        },
        "a folder of images": call(lambda path: data.load(str(path)), "images"),
        "the journal of a search": call(_search, "search"),
        "facts of a zoo": call(partial(zoo.entry, "a"), "zoo"),
    }
)

# Every file of the package that opens files or parses what was in them, and a reader above that goes through it, or why
# there is none. A test compares it with the source.
OPENS: MappingProxyType[str, str] = MappingProxyType(
    {
        "hypersparse/analysis/paper.py": "* the paper's numbers, in the package",
        "hypersparse/pages/template.py": "* the page's template, in the package",
        "hypersparse/cli/recipe_options.py": "train foreign",
        "hypersparse/cli/registry.py": "* the package's own source",
        "hypersparse/data/cifar.py": "an archive of CIFAR",
        "hypersparse/data/digits.py": "* scikit-learn's own file of digits",
        "hypersparse/data/files.py": "an archive of CIFAR",
        "hypersparse/data/decode.py": "a folder of images",
        "hypersparse/data/huggingface.py": "a folder of arrow files",
        "hypersparse/data/npz_file.py": "arrays",
        "hypersparse/data/shards.py": "shards of WebDataset",
        "hypersparse/data/tiny_imagenet.py": "an archive of TinyImageNet",
        "hypersparse/data/webdataset.py": "shards of WebDataset",
        "hypersparse/distributed/checkpoint.py": "a sharded checkpoint's entry",
        "hypersparse/export/c_kernels.py": "* functions in C, in the package",
        "hypersparse/export/web/modules.py": "* the runtime in JavaScript, in the package",
        "hypersparse/export/web/package.py": "* files of the npm package, in the package",
        "hypersparse/export/web/page.py": "a page",
        "hypersparse/integrations/optuna.py": "the journal of a search",
        "hypersparse/integrations/pretrained.py": "a model of Transformers adapted",
        "hypersparse/integrations/ray.py": "* what the process itself sent",
        "hypersparse/integrations/transformers.py": "* the state of a trainer's own checkpoint, weights-only",
        "hypersparse/integrations/wandb.py": "* a number of epochs, with --track wandb",
        "hypersparse/recipe.py": "plan foreign",
        "hypersparse/regular_file.py": "arrays",
        "hypersparse/runs/pack.py": "unpack of-code",
        "hypersparse/runs/sweep.py": "* why a run failed, shown as text",
        "hypersparse/serve/images.py": "images that are sent",
        "hypersparse/sparsity/mask.py": "a mask",
        "hypersparse/storage/checkpoint.py": "a checkpoint",
        "hypersparse/storage/files.py": "a checkpoint",
        "hypersparse/storage/lock.py": "* a lock, in which nothing is read",
        "hypersparse/storage/record.py": "a record",
        "hypersparse/storage/run_folder.py": "a run's files",
        "hypersparse/storage/schemas.py": "a run's files",
        "hypersparse/storage/weights_io.py": "weights True",
        "hypersparse/training/memory.py": "* the memory limit of the process, a number",
        "hypersparse/training/result.py": "* the package's own source",
        "hypersparse/zoo/__init__.py": "facts of a zoo",
        "hypersparse/zoo/find_network.py": "evaluate foreign-12345678",
        "hypersparse_runtime/compile_kernel.py": "* the kernel's source, in the package",
        "hypersparse_runtime/compile_wasm.py": "* the kernel's source, in the package",
        "hypersparse_runtime/container.py": "the runtime",
        "hypersparse_runtime/file.py": "the runtime",
        "hypersparse_runtime/kernel_library.py": "* the kernel: tests/runtime/test_kernel_library.py",
        "hypersparse_runtime/lowering.py": "* begins a layer, no file",
        "hypersparse_runtime/operations/merging.py": "* begins a layer, no file",
        "hypersparse_runtime/position_coding.py": "the runtime",
    }
)
