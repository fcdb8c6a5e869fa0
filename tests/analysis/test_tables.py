"""Numbers as tables say them."""

import pandas as pd

from hypersparse.analysis.tables import count_verdicts, format_cells


def test_means_stand_beside_their_deviations_and_lone_ones_have_as_many_digits() -> None:
    frame = pd.DataFrame(
        {
            "model": ["a", "b", "c"],
            "best": [92.5, 94.2, None],
            "best_deviation": [0.014, None, None],
            "epochs": [53.0, 24.0, None],
            "epochs_deviation": [0.0, None, None],
            "share": [0.28846, 0.5, None],
        }
    )
    shown = format_cells(frame)
    assert shown.columns.tolist() == ["model", "best", "epochs", "share"]
    assert shown["best"].tolist() == ["92.50 ± 0.01", "94.20", ""]
    assert shown["epochs"].tolist() == ["53.00 ± 0.00", "24", ""]
    assert shown["share"].tolist() == ["0.2885", "0.5", ""]


def test_a_difference_has_its_interval_and_a_variant_its_name_alone() -> None:
    frame = pd.DataFrame(
        {
            "method": ["art"] * 3,
            "penalty": ["l1"] * 3,
            "variant": ["art l1, growth=1.1"] * 3,
            "last_difference": [0.755, -0.5, None],
            "low": [-1.087, None, None],
            "high": [2.597, None, None],
        }
    )
    shown = format_cells(frame)
    assert shown.columns.tolist() == ["variant", "last_difference"]
    assert shown["last_difference"].tolist() == ["+0.76 (-1.09 to 2.60)", "-0.50", ""]


def test_verdicts_on_the_last_epoch_are_counted_where_they_are_others() -> None:
    best = ["reproduced", "reproduced", "missing"]
    frame = pd.DataFrame({"best_verdict": best, "last_verdict": ["reproduced", "worse", "missing"]})
    assert count_verdicts(frame) == "2 reproduced, 1 missing; by the last epoch 1 reproduced, 1 worse, 1 missing"
    assert count_verdicts(frame.assign(last_verdict=best)) == "2 reproduced, 1 missing"
