"""`python -m reproduction positions`, `map` and `store-positions`: the order in which training images are learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.progress import Progress

from hypersparse.analysis.finished_runs import FinishedRun, with_records
from hypersparse.cli.analyze import Names, Out, find, show
from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir, data_folders, load_data
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.data.dataset import Dataset
from reproduction.learning_order import cifar_n
from reproduction.learning_order.compression_position import learning_orders
from reproduction.learning_order.embedding import Encoder, make_encoder
from reproduction.learning_order.position_figures import MOST_CLASSES, analyze_classes
from reproduction.learning_order.position_figures import analyze as analyze_positions
from reproduction.learning_order.sample_map import analyze as analyze_map
from reproduction.learning_order.sample_map import analyze_hardness, sample_orders
from reproduction.learning_order.samples import Samples, samples_of
from reproduction.learning_order.stored_positions import write_positions
from reproduction.learning_order.tsne import PERPLEXITY, Points, cached_points, embed, key_of

MOST_ACROSS = 7  # levels: dense and the paper's six sparsities of one network

Human = Annotated[Path | None, typer.Option("--human", help="CIFAR-N's labels, as an .npz or the original .pt file.")]


def positions(
    runs: Names = None,
    human: Human = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    out: Out = Path("figures"),
) -> None:
    """Order in which classes and images are learned (table 3 of the paper)."""
    stored = with_records(find(runs, runs_dir))
    _, samples = load_samples(stored, human, data_dir)
    found, accuracies = analyze_positions(stored, samples), analyze_classes(stored, samples)
    classes, facts = found.tables["positions-classes"], found.tables["positions-agreement"]
    few = [classes.round(3)] if len(samples.classes) <= MOST_CLASSES else []  # more would not fit a screen
    show([found, accuracies], out, [*few, turned(facts.round(3))])


def store_positions(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs of one data set.")],
    human: Human = None,
    data_dir: DataDir = None,
) -> None:
    """Write the means of Compression Position beside runs, for machines without the data set."""
    stored = with_records(find(runs, Path("runs")))
    _, samples = load_samples(stored, human, data_dir)
    for path in write_positions(stored, samples):
        typer.echo(path)


def turned(facts: pd.DataFrame) -> pd.DataFrame:
    """Facts down and levels across: there are many facts and usually few levels."""
    if len(facts) > MOST_ACROSS:
        return facts
    across = facts.dropna(axis="columns", how="all").set_index("sparsity").T.rename_axis("sparsity").reset_index()
    return across.assign(sparsity=across["sparsity"].str.replace("_", " "))


def load_samples(runs: Sequence[FinishedRun], human: Path | None, data_dir: Path | None) -> tuple[Dataset, Samples]:
    """The data set of runs and the images they were trained on."""
    labels = cifar_n.read(human) if human else None  # first, as loading data may take a while
    dataset = load_data(runs[0].recipe, data_folders(data_dir), quiet=not Console(stderr=True).is_terminal)
    return dataset, samples_of(runs, dataset, labels)


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """The vectors of the images, and their map."""

    embedding: str = option(
        "auto",
        "clip, imagenet, network (a run's own features), or a .npy file with a row for each training image; "
        "auto takes the first available of clip, imagenet and network.",
    )
    clip: Path | None = option(None, "Folder with CLIP's config.json and weights.")
    pixels: int = option(224, "Size of images for imagenet; 128 is faster.", min=32)
    samples: int | None = option(None, "A quick map of this many images, drawn at random.", min=100)
    perplexity: float = option(PERPLEXITY, "Perplexity of t-SNE.", min=2)
    seed: int = option(0, "Seed of the images drawn and of t-SNE.", min=0)


@grouped
def sample_map(
    chosen: MapOptions,
    runs: Names = None,
    human: Human = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    out: Out = Path("figures"),
) -> None:
    """Training images on a t-SNE map, by learning order (figure 4 of the paper)."""
    stored = with_records(find(runs, runs_dir))
    dataset, everyone = load_samples(stored, human, data_dir)
    networks = learning_orders(stored, everyone)
    places = _places(len(everyone), chosen.samples, chosen.seed)
    ours = everyone.take(places)
    encoder = make_encoder(
        chosen.embedding, stored, dataset, places=ours.places, clip=chosen.clip, pixels=chosen.pixels
    )
    points = _points(encoder, ours, dataset, out / "map-coordinates.npz", chosen)
    results = [analyze_map(sample_orders(networks, places), ours, points, total=len(everyone))]
    tables = [results[0].tables["map-windows"].drop(columns="embedding")]
    if ours.hardness is not None:
        results.append(analyze_hardness(ours, points, total=len(everyone)))
        tables.append(results[1].tables["map-spread"].drop(columns="embedding"))
    show(results, out, tables)


def _places(total: int, samples: int | None, seed: int) -> NDArray[np.int64]:
    if samples is None or samples >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, samples, replace=False))


def _points(encoder: Encoder, samples: Samples, dataset: Dataset, path: Path, chosen: MapOptions) -> Points:
    """Coordinates of the images; a progress bar while they are embedded."""
    settings = {"perplexity": chosen.perplexity, "seed": chosen.seed}

    def make() -> NDArray[np.float32]:
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("Looking at images", total=len(samples))
            vectors = encoder.vectors(samples.images(dataset), lambda done: bar.update(task, completed=done))
        return embed(vectors, **settings)  # type: ignore[arg-type]

    key = key_of(encoder.identity, samples.places, **settings)  # type: ignore[arg-type]
    points, reused = cached_points(path, key, encoder.name, make)
    typer.echo(f"{'Stored coordinates, made of' if reused else 'Made of'} {encoder.name}")
    return points
