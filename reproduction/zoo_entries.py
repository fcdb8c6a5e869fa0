"""`python -m reproduction zoo-add`: put the network of a finished run into the package, or into another folder."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from hypersparse import zoo
from hypersparse.cli.load_data import DataDir
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.export.input_normalization import Normalisation
from hypersparse.export.sparse_file import deployed, load_graph, load_sparse, save_graph
from hypersparse.export.trace import trace
from hypersparse.export.trained_model import TrainedModel
from hypersparse.export.verify import Predict, PredictionCheck
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import make_folder, write_atomically, write_json, writing
from hypersparse.storage.run_folder import RunFolder
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.sparse_model import SparseModel

PROBES = 8  # inputs for which outputs are stored
PATCH = 4  # pixels: inputs are coarse patches plus noise, so that outputs differ and are not huge
DEFAULT_METHOD = "-art-hypersparse"  # omitted in a name
MAX_DIFFERENCE = 0.01  # in accuracy between the file and the run's last epoch, which may have used bf16 on a GPU
DIGITS = 7  # of a stored output, which is a float32


def name_of(recipe: Recipe) -> str:
    """The name of an entry: data, model, method unless it is the default, and sparsity."""
    return recipe.label.removesuffix(f"-{recipe.key}").replace(DEFAULT_METHOD, "")


def add(
    run: RunFolder, trained: TrainedModel, folder: Path = zoo.FOLDER, *, name: str | None = None, replace: bool = False
) -> zoo.Entry:
    """Write a finished run's network in the deploy profile, with its results and its outputs for synthetic inputs.

    Values are rounded only as far as the predictions for all test images stay the same. The networks that ship with
    the package take at most 5 MB.
    """
    name = _checked(name or name_of(trained.recipe), folder, replace)
    facts = _facts(run)
    check = PredictionCheck(trained, len(trained.dataset.test))
    traced = trace(trained.model, trained.dataset.shape, trained.about())
    graph = deployed(traced, lambda rounded: check.same(_in_runtime(rounded)))
    make_folder(folder)
    inputs = _stored_inputs(folder, trained.dataset.shape)
    with TemporaryDirectory(dir=folder, prefix=".") as beside:
        network, facts_file = Path(beside) / f"{name}{zoo.NETWORK}", Path(beside) / f"{name}{zoo.FACTS}"
        save_graph(graph, network)
        facts |= _tested(name, network, check, facts["last"])
        write_json(facts_file, facts | {"inputs": inputs.name, "logits": _outputs(network, inputs)})
        _check_size(folder, network, facts_file)
        with writing(folder):
            (folder / facts_file.name).unlink(
                missing_ok=True
            )  # marks the entry as complete: must not exist beside another network
            network.replace(folder / network.name)
            facts_file.replace(folder / facts_file.name)
    return zoo.entry(name, folder)


def zoo_add(
    run: Annotated[str, typer.Argument(help="A finished run: a folder, or a part of its name.")],
    folder: Annotated[Path, typer.Option(file_okay=False, help="A folder other than the package's.")] = zoo.FOLDER,
    name: Annotated[str | None, typer.Option(help="The name of the network.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a network of that name.")] = False,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Add the network of a finished run to the zoo, tested on all test images."""
    found = RunStore(runs_dir).find(run)
    trained = open_network(str(found.path), NetworkQuery(data_dir=data_dir, runs_dir=runs_dir))
    entry = add(found, trained, folder, name=name, replace=replace)
    typer.echo(f"{entry.name}: {entry.bytes:,} bytes, test accuracy {100 * entry.test_accuracy:.2f} %")


def size(folder: Path) -> int:
    """Bytes of all entries and their inputs."""
    suffixes = (zoo.NETWORK, zoo.FACTS, zoo.INPUTS)
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in suffixes)


def synthetic_images(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Synthetic images of coarse patches plus noise, the same in every call."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 64, (PROBES, *shape), dtype=np.uint8)
    if len(shape) != 3:
        return noise * 4
    channels, height, width = shape
    coarse = rng.integers(0, 192, (PROBES, channels, -(-height // PATCH), -(-width // PATCH)), dtype=np.uint8)
    patches = coarse.repeat(PATCH, axis=2).repeat(PATCH, axis=3)[:, :, :height, :width]
    pixels: NDArray[np.uint8] = patches + noise
    return pixels


def probe(name: str, folder: Path = zoo.FOLDER) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The synthetic inputs of an entry, normalised, and the outputs stored for them."""
    facts, path = zoo.read_facts(name, folder), zoo.path_of(name, folder)
    try:
        pixels = np.load(folder / facts["inputs"], allow_pickle=False)
        logits = np.array(facts["logits"], dtype=np.float32)
    except (OSError, ValueError) as error:
        raise RunError(f"The stored inputs or outputs of {name} in {folder} cannot be read: {error}.") from None
    return normalised(pixels, load_graph(path)), logits


def normalised(pixels: NDArray[Any], graph: Graph) -> NDArray[np.float32]:
    """Normalise a batch of pixels as the network expects."""
    rule = Normalisation.read(graph.about, graph.input_shape[0])
    if rule is None:
        raise RunError("The network's file does not say how images are normalised; export it again.")
    return rule(pixels)


def _checked(name: str, folder: Path, replace: bool) -> str:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise OptionError(f"A network's name has letters, digits and `-_.+` only; got `{name}`.")
    if name in zoo.names(folder) and not replace:
        raise OptionError(f"{folder} has a network `{name}` already; pass another --name, or --replace.")
    return name


def _facts(run: RunFolder) -> dict[str, Any]:
    """The results of a run, by the field names of an entry."""
    result = run.result()
    if result is None or result["until"] is not None:
        raise RunError(f"{run.path} is not finished; the zoo takes networks of finished runs.")
    sparse = result["sparse"]
    if sparse is None:
        raise RunError(f"{run.path} trained a dense network; the zoo takes sparse ones.")
    same = ("data", "model", "seed", "sparsity", "kept", "total")
    facts = {key: value for key, value in result.items() if key in same}
    ended = {key: value for key, value in sparse.items() if key in ("last", "best", "best_picked_on")}
    return {**facts, "recipe": result["label"], **ended}


def _tested(name: str, network: Path, check: PredictionCheck, expected: float) -> dict[str, Any]:
    """Accuracy of the file in the sparse runtime on all test images; an error if it differs from the run's."""
    came = check.accuracy(_in_runtime(load_graph(network)))
    if abs(came - expected) > MAX_DIFFERENCE:
        raise ModelError(
            f"{name} has a test accuracy of {100 * came:.2f} % but its run reached {100 * expected:.2f} %; "
            "point --data-dir to the data it was trained on."
        )
    return {"test_accuracy": came, "test_images": check.count}


def _in_runtime(graph: Graph) -> Predict:
    """A prediction function of the sparse runtime, which is much faster than PyTorch on a CPU."""
    model = SparseModel(graph)
    return lambda images: torch.from_numpy(model(images.numpy()))


def _outputs(network: Path, inputs: Path) -> list[list[float]]:
    """The outputs of the file for the synthetic inputs."""
    given = normalised(np.load(inputs, allow_pickle=False), load_graph(network))
    with torch.no_grad():
        logits = load_sparse(network)(torch.from_numpy(given))
    return [[float(f"{value:.{DIGITS}g}") for value in row] for row in logits.tolist()]


def _check_size(folder: Path, *new: Path) -> None:
    if folder.resolve() != zoo.FOLDER.resolve():
        return
    old = sum(path.stat().st_size for path in (folder / file.name for file in new) if path.is_file())
    total = size(folder) - old + sum(path.stat().st_size for path in new)
    if total > zoo.MOST_BYTES:
        raise ModelError(
            f"The networks that ship with the package may take {zoo.MOST_BYTES:,} bytes; with this one it is {total:,}."
        )


def _stored_inputs(folder: Path, shape: tuple[int, ...]) -> Path:
    """The file with the synthetic inputs of a shape; written once and never changed."""
    path = folder / f"inputs-{'x'.join(map(str, shape))}{zoo.INPUTS}"
    if not path.is_file():

        def write(beside: Path) -> None:
            with beside.open("wb") as file:
                np.save(file, synthetic_images(shape), allow_pickle=False)

        write_atomically(path, write)
    return path
