"""Numbers that can be worked out by hand, and files one can open."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from hypersparse.analysis import comparison


def result(method: str, sparsity: float | None, seed: int, last: float, *, sparse: bool = True) -> dict[str, Any]:
    part = {"last": last, "best": last + 0.01}
    return {
        "seed": seed,
        "dense": None if sparse else part,
        "sparse": part if sparse else None,
        "kept": 10,
        "total": 100,
        "epochs": {"train": 3, "fine-tune": 2},
        "wall_seconds": 1.5,
        "recipe": {"method": {"name": method, **({} if sparsity is None else {"sparsity": sparsity})}},
    }


def results() -> list[dict[str, Any]]:
    return [
        *(result("art", 0.9, seed, last) for seed, last in enumerate((0.90, 0.92, 0.94))),
        *(result("snip", 0.9, seed, last) for seed, last in enumerate((0.80, 0.82))),
        result("rigl", 0.9, 0, 0.95),
        result("art", 0.98, 0, 0.85),
        result("dense", None, 0, 0.97, sparse=False),
    ]


def collected(runs: list[dict[str, Any]]) -> pd.DataFrame:
    return comparison.collect(runs, [run["recipe"]["method"]["name"] for run in runs])


def test_mean_deviation_and_places() -> None:
    summary = comparison.summarize(collected(results()))
    art = summary[(summary["method"] == "art") & (summary["sparsity"] == 0.9)].iloc[0]
    assert art["last"] == pytest.approx(92.0)
    assert art["last_deviation"] == pytest.approx(2.0)  # of the sample: divided by n - 1
    assert art["best"] == pytest.approx(93.0)
    assert (art["seeds"], art["epochs"], art["place"]) == (3, 5.0, 2.0)
    header, rows = comparison.grid(summary)
    assert header == ["method", "90 %", "98 %", "epochs"]
    assert rows == [
        ["art", "*92.00 ± 2.00*", "**85.00**", "5"],
        ["snip", "81.00 ± 1.41", "", "5"],
        ["rigl", "**95.00**", "", "5"],
        ["dense", "97.00", "97.00", "5"],
    ]


def test_the_same_accuracies_in_another_order_are_equally_good() -> None:
    values = (350 / 360, 351 / 360, 355 / 360)
    one = [result("art", 0.9, seed, last) for seed, last in enumerate(values)]
    other = [result("imp", 0.9, seed, last) for seed, last in enumerate(reversed(values))]
    summary = comparison.summarize(collected([*one, *other]))
    assert summary["last"].nunique() == 2  # to the last bit
    assert summary["place"].tolist() == [1.0, 1.0]


def test_dense_networks_alone_have_a_column() -> None:
    alone = [result("dense", None, seed, last, sparse=False) for seed, last in enumerate((0.96, 0.98))]
    summary = comparison.summarize(collected(alone))
    assert comparison.grid(summary) == (["method", "dense", "epochs"], [["dense", "97.00 ± 1.41", "5"]])
    assert "over 2 seeds" in comparison.markdown(summary, "digits")


@pytest.mark.filterwarnings("error")
def test_a_single_sparsity_is_drawn(tmp_path: Path) -> None:
    one = [result("art", 0.9, 0, 0.9), result("snip", 0.9, 0, 0.8), result("dense", None, 0, 0.97, sparse=False)]
    one.append(result("art", 0.9, 1, 0.94))
    runs = collected(one)
    assert tmp_path / "accuracy.png" in comparison.write(tmp_path, runs, "digits")
    assert (tmp_path / "accuracy.png").is_file()
    (axes,) = comparison.draw(comparison.summarize(runs), "digits").axes
    bars = [line.get_segments() for line in axes.collections if isinstance(line, LineCollection)]
    ends = [float(end) for end in bars[0][0][:, 1]]  # a band would have no width: mean and one deviation
    assert ends == pytest.approx([92 - 8**0.5, 92 + 8**0.5])


def test_files_of_a_comparison(tmp_path: Path) -> None:
    paths = comparison.write(tmp_path / "new" / "folder", collected(results()), "digits")
    names = ["runs.csv", "summary.csv", "paired.csv", "timing.csv", "table.md", "accuracy.png", "accuracy.svg"]
    assert [path.name for path in paths] == names
    text, png, svg = paths[4:]
    assert len(pd.read_csv(paths[0])) == 8
    assert list(pd.read_csv(paths[3])["seconds"]) == [1.5] * 8
    again = comparison.write(
        tmp_path / "again", collected([{**run, "wall_seconds": 2.5} for run in results()]), "digits"
    )
    assert [path.name for path, other in zip(paths, again, strict=True) if path.read_bytes() != other.read_bytes()] == [
        "timing.csv"
    ]
    assert "| art | *92.00 ± 2.00* | **85.00** | 5 |" in text.read_text()
    assert "over 1 to 3 seeds" in text.read_text()  # not all of them have three
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in svg.read_text()
    assert "## Comparison with the best method, seed by seed" in text.read_text()
    assert list(pd.read_csv(paths[2])["method"]) == ["art", "snip"]  # against rigl at 90 %; nobody else is at 98 %
