"""The picture of a search: its rows, and the mark on the network that was chosen."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt

from hypersparse.analysis.front import front
from hypersparse.runs.find import Copy, Found, Point

SHARED = Point(0.9, 0.96, 0.95, Path("run"))
ALONE = Point(0.98, 0.94, 0.93, Path("run"), shared=False)
FOUND = Found(0.97, (Copy(0.9, 0.5, Path("file")),), (SHARED, ALONE), SHARED)


def marks(found: Found) -> dict[str, list[tuple[float, float]]]:
    """The points of each line of the legend."""
    result = front(found, 0.95, name="front")
    (axes,) = result.figure.axes
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.get_lines()}
    plt.close(result.figure)
    return {str(label): [(round(float(x), 6), round(float(y), 6)) for x, y in own] for label, own in points.items()}


def test_the_chosen_network_is_marked() -> None:
    found = marks(FOUND)
    assert found["chosen"] == found["fine-tuned copy, held-out images"] == [(0.1, 96.0)]
    assert found["ART alone, test images"] == [(0.02, 93.0)]
    assert found["pruned copy, training images"] == [(0.1, 50.0)]
    assert "chosen" not in marks(replace(FOUND, best=None))
    assert [y for _, y in marks(replace(FOUND, dense=None)).get("dense, held-out images", [])] == []
    assert [y for _, y in found["dense, held-out images"]] == [97.0, 97.0]
