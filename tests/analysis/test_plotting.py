"""How figures look: names and titles have room, lines are told apart, and files are those that are said."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from hypersparse.analysis import intersection, masks, tradeoffs
from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.analysis.plotting import COLUMN, PAGE, AnalysisResult, line_styles, panels, title
from hypersparse.analysis.plotting import write as write_result
from tests.analysis.small import write


def test_a_long_name_does_not_take_the_place_of_the_figure(tmp_path: Path) -> None:
    options = {"pretrain_epochs": 7, "max_regularized_epochs": 11, "growth": 1.25, "strength": 0.0125}
    (named,) = masks.crossings([write(tmp_path), write(tmp_path, method_options=options)])
    (names,) = [axes.get_legend().get_texts() for axes in named.figure.axes]
    lines = [line for name in names for line in name.get_text().splitlines()]
    assert "strength=0.0125" in " ".join(lines)
    assert max(map(len, lines)) <= 36


@pytest.fixture
def many(tmp_path: Path) -> list[FinishedRun]:
    """Two seeds each of ten variants with long names, and of the plain recipe, which shares no option with them."""
    options = {"pretrain_epochs": 0, "max_regularized_epochs": 11, "strength": 0.0125, "best_by": "mean"}
    own = [{}, *(options | {"growth": 1.01 + number / 100} for number in range(10))]
    return [write(tmp_path, seed=seed, method_options=each) for each in own for seed in range(2)]


@pytest.mark.parametrize("make", [masks.crossings, tradeoffs.effective, tradeoffs.accuracy, intersection.analyze])
def test_a_figure_has_room_for_all_names_beside_it(
    many: list[FinishedRun], make: Callable[..., list[AnalysisResult]]
) -> None:
    (found,) = make(many)
    found.figure.draw_without_rendering()  # where axes have no room there is a warning
    *_, axes = found.figure.axes
    names, own = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert found.figure.bbox.y0 < names.y0 < names.y1 < found.figure.bbox.y1
    assert own.height > names.height > 2 * found.figure.dpi


def test_rows_with_long_names_leave_room_for_their_numbers(many: list[FinishedRun]) -> None:
    figure = masks.agreement(many)[0].figure
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_window_extent().width > figure.bbox.width / 2
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(above.y0 > below.y1 for above, below in pairwise(boxes))  # the first is at the top


def test_changes_of_variants_with_long_names_is_told_apart(many: list[FinishedRun]) -> None:
    titles = {result.figure.get_suptitle() for result in tradeoffs.classes(many)}
    assert len(titles) == 11
    assert not any(title.endswith("...") for title in titles)


def test_many_lines_are_named_beside_them(tmp_path: Path) -> None:
    runs = [write(tmp_path, sparsity=sparsity) for sparsity in (0.9, 0.95, 0.98, 0.99)]
    few, many = (intersection.analyze(some)[0].figure.get_size_inches()[0] for some in (runs[:3], runs))
    assert (few, many) == (COLUMN, PAGE)


@pytest.mark.parametrize("width", [COLUMN, PAGE])
def test_a_long_title_is_folded_into_the_figure(width: float) -> None:
    figure, _ = panels(width=width)
    title(figure, "Who wrote many words about the weights in a wide network of many layers: wide_resnet on cifar100")
    figure.draw_without_rendering()
    box = figure.texts[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    title(figure, "many words " * 100)
    assert figure.get_suptitle().count("\n") == 1
    assert figure.get_suptitle().endswith(" ...")


def test_a_title_is_not_broken_between_a_number_and_its_sign() -> None:
    figure, _ = panels(width=COLUMN)
    for before in range(25, 42):
        title(figure, f"{'x' * before} 98 % and more words")
        assert "98 %" in figure.get_suptitle()


def test_lines_are_told_apart_where_colours_come_again() -> None:
    styles = line_styles(12)
    assert len({style["marker"] for style in styles}) == 12
    assert len({(style["color"], style["linestyle"]) for style in styles}) == 12


def test_a_study_is_written_as_pictures_and_numbers(tmp_path: Path) -> None:
    run = write(tmp_path / "runs")
    (result,) = masks.crossings([run])
    paths = write_result(tmp_path / "figures", result)
    assert [path.name for path in paths] == [f"crossing-digits-resnet8.{suffix}" for suffix in ("png", "svg", "csv")]
    assert pd.read_csv(paths[2])["share"].tolist() == [0.4, 0.3, 0.1]
    first = [path.read_bytes() for path in paths]
    (again,) = masks.crossings([run])
    assert [path.read_bytes() for path in write_result(tmp_path / "figures", again)] == first
