"""Compression Position (CP): the order in which training images are learned, by class and by label errors.

psi(x) is the share of epochs in which image x was right. The epochs are those of the dense network in pre-training, or
of its pruned copies while the penalty grows. CP(x) is the place of psi(x) among all images in descending order. Early
images have a CP near 0, late ones near 1. The mean over all images is exactly 0.5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hypersparse.analysis.finished_runs import FinishedRun, with_records
from hypersparse.analysis.paper import table
from hypersparse.errors import RunError
from reproduction.learning_order.samples import Samples, check_counts

DENSE = 0.0  # the sparsity that stands for the dense network
ALL = -1  # the hardness that stands for all images of a class
PRETRAINING = "pre-training"
IN_THE_PAPER = (PRETRAINING, "art hypersparse")  # methods whose order it reports
PAPER_DATA = "cifar10"
KEYS = ["model", "method", "sparsity"]  # what tells levels apart


def compression_position(correct: NDArray[Any]) -> NDArray[np.float64]:
    """CP of each image from its number of correct epochs; equal counts share their average rank.

    >>> compression_position(np.array([5, 9, 5, 0])).tolist()
    [0.5, 0.125, 0.5, 0.875]
    """
    ranks = pd.Series(correct.astype(np.int64)).rank(method="average", ascending=False).to_numpy()  # from 1
    positions: NDArray[np.float64] = (ranks - 0.5) / len(ranks)
    return positions


@dataclass(frozen=True, eq=False)
class LearningOrder:
    """The order in which one network, dense or pruned, learned the images."""

    run: FinishedRun
    sparsity: float
    correct: NDArray[Any]  # epochs in which each image was right
    epochs: int

    @property
    def settings(self) -> dict[str, Any]:
        """Model, variant of the method and sparsity; the dense network's method is the phase it is counted in."""
        words = self.run.settings
        method = words["variant"]
        if self.sparsity == DENSE:  # art's holds the learning rate, so that of another method is another training
            method = PRETRAINING if words["method"] == "art" else f"{PRETRAINING} of {words['method']}"
        return {"model": words["model"], "method": method, "sparsity": self.sparsity}

    @property
    def positions(self) -> NDArray[np.float64]:
        """The Compression Position of each image."""
        return compression_position(self.correct)


def learning_orders(runs: Sequence[FinishedRun], samples: Samples) -> list[LearningOrder]:
    """The learning order of every network, dense ones first; shared pre-trainings count once."""
    found: dict[Any, LearningOrder] = {}
    for run in with_records(runs):
        check_counts(run, samples)
        for each in learning_orders_of(run):
            found.setdefault((*each.settings.values(), run.seed, each.correct.tobytes()), each)
    if not found:
        raise RunError(
            "None of these runs counted correct epochs for each training image. Pre-training counts them, and so do "
            "methods that score pruned copies on images without augmentation (art)."
        )
    return sorted(found.values(), key=lambda each: (each.sparsity, *map(str, each.settings.values()), each.run.seed))


def learning_orders_of(run: FinishedRun) -> Iterator[LearningOrder]:
    """The learning orders in a run's record: dense network, pruned copies, or both."""
    record = run.record
    if record["dense_epochs"]:
        yield LearningOrder(run, DENSE, record["dense_correct"], int(record["dense_epochs"]))
    if record["pruned_epochs"] and not np.isnan(record["sparsity"]):
        yield LearningOrder(run, float(record["sparsity"]), record["pruned_correct"], int(record["pruned_epochs"]))


def by_seed(networks: Sequence[LearningOrder], samples: Samples) -> pd.DataFrame:
    """A row for each network, class and hardness, with mean CP and psi; hardness -1 is all images."""
    frames = []
    for network in networks:
        images = pd.DataFrame(
            {
                "class": pd.Categorical.from_codes(samples.labels, pd.Index(list(samples.classes))),
                "human_label_errors": ALL if samples.hardness is None else samples.hardness,
                "compression_position": network.positions,
                "psi": network.correct / network.epochs,
            }
        )
        kinds = [images.assign(human_label_errors=ALL)] + ([images] if samples.hardness is not None else [])
        for kind in kinds:
            groups = kind.groupby(["human_label_errors", "class"], observed=True)
            means = groups.agg(
                images=("psi", "size"), compression_position=("compression_position", "mean"), psi=("psi", "mean")
            )
            frames.append(means.reset_index().assign(**network.settings, seed=network.run.seed, epochs=network.epochs))
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(**{"class": frame["class"].astype(str)})


def over_seeds(rows: pd.DataFrame, data: str) -> pd.DataFrame:
    """Means and deviations over seeds, with the paper's number and the difference if it has one."""
    groups = rows.groupby([*KEYS, "human_label_errors", "class"], sort=False)
    means = groups.agg(
        images=("images", "first"),
        seeds=("seed", "nunique"),
        compression_position=("compression_position", "mean"),
        deviation=("compression_position", "std"),
        psi=("psi", "mean"),
    ).reset_index()
    known = paper_positions(means) if data == PAPER_DATA else None
    if known is None:
        return means.assign(paper=np.nan, difference=np.nan)
    means = means.merge(known, how="left", on=["sparsity", "human_label_errors", "class"])
    comparable = means["method"].isin(IN_THE_PAPER)
    means["paper"] = means["paper"].where(comparable)
    return means.assign(difference=means["compression_position"] - means["paper"])


def paper_positions(means: pd.DataFrame) -> pd.DataFrame:
    """The paper's table for CIFAR-10, and each class's mean, weighted by the images of each hardness."""
    known = table("compression_position").rename(columns={"compression_position": "paper"})
    counts = means[means["human_label_errors"] >= 0].drop_duplicates(["human_label_errors", "class"])
    if len(counts) == 0:  # how hard the images are is not known, so neither is the paper's mean of a class
        return known
    weighted = known.merge(counts[["human_label_errors", "class", "images"]], on=["human_label_errors", "class"])
    weighted["paper"] *= weighted["images"]
    sums = weighted.groupby(["sparsity", "class"])[["paper", "images"]].sum().reset_index()
    classes = sums.assign(paper=sums["paper"] / sums["images"], human_label_errors=ALL).drop(columns="images")
    return pd.concat([known, classes], ignore_index=True)


def paper_layout(means: pd.DataFrame, column: str = "compression_position") -> pd.DataFrame:
    """The paper's layout: sparsity and label errors down, classes across; `all` is all images."""
    having = means.dropna(subset=[column])
    down = ["sparsity", *(name for name in ("model", "method") if _tells_apart(having, name)), "human_label_errors"]
    flat = having.pivot_table(index=down, columns="class", values=column, sort=True)
    flat = flat[[name for name in dict.fromkeys(means["class"]) if name in flat]].reset_index()
    flat["human_label_errors"] = [str(errors) if errors >= 0 else "all" for errors in flat["human_label_errors"]]
    return flat.rename_axis(columns=None)


def by_class(means: pd.DataFrame) -> pd.DataFrame:
    """Sparsity and class down; label errors, all images and the paper's mean across."""
    down = ["sparsity", *(name for name in ("model", "method") if _tells_apart(means, name)), "class"]
    across = means.pivot_table(index=down, columns="human_label_errors", values="compression_position", sort=False)
    across = across.rename(columns=lambda errors: "all" if errors == ALL else f"h={errors}").rename_axis(columns=None)
    whole = means[means["human_label_errors"] == ALL].set_index(down)
    across = across.join(whole[["deviation", "paper", "difference"]]).dropna(axis="columns", how="all")
    return across.reset_index()


def _tells_apart(means: pd.DataFrame, name: str) -> bool:
    return bool((means.groupby("sparsity")[name].nunique() > 1).any())


def agreement(means: pd.DataFrame) -> pd.DataFrame:
    """For each level: order of the classes, whether harder images come later, and agreement with the paper."""
    return pd.DataFrame([_agreement(dict(zip(KEYS, keys, strict=True)), level) for keys, level in levels(means)])


def levels(means: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The rows of each model, method and sparsity, the dense network first."""
    order = sorted(means.groupby(KEYS), key=lambda group: (group[0][2], *group[0][:2]))
    yield from order


def level_names(words: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names such as `dense` and `98 % pruned`, with method or model where needed to be unique.

    >>> level_names([{"model": "a", "method": "art l1", "sparsity": 0.9}, {"model": "a", "method": "x", "sparsity": 0}])
    ['90 % pruned', 'dense']
    """
    names = []
    for each in words:
        name = "dense" if each["sparsity"] == DENSE else f"{100 * each['sparsity']:g} % pruned"
        alike = [other for other in words if other["sparsity"] == each["sparsity"]]
        more = [each[key] for key in ("method", "model") if len({other[key] for other in alike}) > 1]
        names.append(", ".join([name, *more]))
    return names


def _agreement(words: dict[str, Any], level: pd.DataFrame) -> dict[str, Any]:
    classes = level[level["human_label_errors"] == ALL].sort_values("compression_position")
    cells = level[level["human_label_errors"] >= 0]
    both = cells.dropna(subset=["paper"])
    known = classes.dropna(subset=["paper"])
    later = cells.sort_values("human_label_errors").groupby("class")["compression_position"]
    return {
        **words,
        "seeds": int(level["seeds"].max()),
        "first": classes["class"].iloc[0],
        "first_position": classes["compression_position"].iloc[0],
        "last": classes["class"].iloc[-1],
        "last_position": classes["compression_position"].iloc[-1],
        "harder_is_later": int(later.apply(lambda each: each.is_monotonic_increasing).sum()) if len(cells) else None,
        "paper_first": known.sort_values("paper")["class"].iloc[0] if len(known) else None,
        "paper_last": known.sort_values("paper")["class"].iloc[-1] if len(known) else None,
        "rank_correlation": rank_correlation(both["compression_position"], both["paper"]),
        "rank_correlation_classes": rank_correlation(known["compression_position"], known["paper"]),
        "mean_difference": float(both["difference"].abs().mean()) if len(both) else None,
    }


def rank_correlation(ours: "pd.Series[float]", paper: "pd.Series[float]") -> float | None:
    """Spearman's rank correlation; None if there is nothing to order.

    >>> rank_correlation(pd.Series([0.1, 0.5, 0.9]), pd.Series([0.2, 0.3, 0.4]))
    1.0
    """
    if len(ours) < 2 or ours.nunique() < 2 or paper.nunique() < 2:
        return None
    return round(float(np.corrcoef(ours.rank(), paper.rank())[0, 1]), 6)
