"""Grids in files become runs in order."""

from pathlib import Path

import pytest

from hypersparse.analysis.paper import recipe_of, table
from hypersparse.errors import OptionError
from hypersparse.runs.experiment import Experiment, parse_only

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


def experiment(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return Experiment.read(path)


def test_runs_are_in_the_order_of_their_grids_and_unique(tmp_path: Path) -> None:
    found = experiment(
        tmp_path,
        """
        [options.training]
        epochs = 7
        [[grid]]
        data = "digits"
        method = ["snip", "dense"]
        sparsity = [0.9, 0.98]
        [[grid]]
        data = "digits"
        method = "snip"
        sparsity = 0.9
        seeds = 2
        [grid.options.training]
        lr = 0.05
        [[grid]]
        data = "digits"
        method = "snip"
        sparsity = 0.9
        seeds = [0, 3]
        """,
    )
    shown = [(run.recipe.method.label(), run.seed, run.recipe.training.lr) for run in found.runs]
    assert shown == [
        ("snip-0.9", 0, 0.1),
        ("snip-0.98", 0, 0.1),
        ("dense", 0, 0.1),
        ("snip-0.9", 0, 0.05),
        ("snip-0.9", 1, 0.05),
        ("snip-0.9", 3, 0.1),
    ]
    assert {run.recipe.training.epochs for run in found.runs} == {7}
    assert (found.name, found.title) == ("mine", "mine")


def test_the_later_of_two_ends_of_a_run_is_used(tmp_path: Path) -> None:
    grids = ['method = "art"\nuntil = "regularize"', 'method = "dense"', 'method = "art"']
    found = experiment(tmp_path, "".join(f'[[grid]]\ndata = "digits"\n{grid}\n' for grid in grids))
    assert [(run.recipe.method.name, run.recipe.until) for run in found.runs] == [("art", None), ("dense", None)]


def test_only_selects_runs(tmp_path: Path) -> None:
    found = experiment(tmp_path, '[[grid]]\ndata = "digits"\nmethod = "art"\nsparsity = [0.9, 0.98]\nseeds = 2')
    some = found.only(parse_only("sparsity=0.98,seed=1"))
    assert [(run.recipe.method.label(), run.seed) for run in some.runs] == [("art-hypersparse-0.98", 1)]
    with pytest.raises(OptionError, match="No run of mine has model=vgg19"):
        found.only({"model": "vgg19"})
    with pytest.raises(OptionError, match="sparsety"):
        found.only({"sparsety": "0.98"})
    with pytest.raises(OptionError, match="AXIS=VALUE"):
        parse_only("cifar10")
    with pytest.raises(OptionError, match="one value for each axis"):
        parse_only("seed=0,seed=1")
    assert found.only({"sparsity": "0.90"}) == found.only({"sparsity": "0.9"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[gird]]", "gird"),
        ('[[grid]]\nmethods = "art"', "methods"),
        ("", "no runs"),
        ('[[grid]]\nmethod = "arrt"', "arrt"),
        ("grid = [", "not valid TOML"),
        ('[grid]\nmethod = "art"', "double brackets"),
        ("grid = [1]", "NAME = VALUE"),
        ("[[grid]]\nmethod = 3", "no method `3`"),
        ('options = 3\n[[grid]]\nmethod = "art"', "options"),
        ('[[grid]]\nmethod = "art"\noptions = [1]', "options"),
        ('[[grid]]\nmethod = "art"\nsparsity = []\n[[grid]]\nmethod = "dense"', "`sparsity` of a grid"),
        *((f'[[grid]]\nmethod = "art"\nseeds = {seeds}', "`seeds`") for seeds in ("-1", "0", '"ab"', "[0.5]", "[-3]")),
    ],
)
def test_an_invalid_file_raises_an_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        experiment(tmp_path, text)
    with pytest.raises(OptionError, match="cannot be read"):
        Experiment.read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="not text"):
        Experiment.read(tmp_path / "bytes.toml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_shipped_experiments_can_be_read(path: Path) -> None:
    found = Experiment.read(path)
    assert found.runs
    assert len({(run.recipe.label, run.seed) for run in found.runs}) == len(found.runs)


def test_the_table_of_the_paper_is_complete() -> None:
    (accuracy,) = (Experiment.read(path) for path in FILES if path.stem == "accuracy")
    # Data, models, methods (ART in four ways) and sparsities and dense, seeds.
    assert len(accuracy.runs) == 3 * 2 * (10 * 6 + 1) * 5
    first = accuracy.runs[0].recipe
    assert (first.data.name, first.model.name, first.method.label()) == ("cifar10", "resnet32", "art-hypersparse-0.98")


def test_what_cifar100_is_trained_for_first_is_part_of_the_tables_and_figures() -> None:
    by_name = {path.stem: Experiment.read(path) for path in FILES}
    own = {(run.recipe.label, run.seed): run.recipe for run in by_name["cifar100"].runs}
    assert len(own) == 2 * 6 + 2 + 2 + 2  # ART, dense, L1 and L2, SRatio and IMP
    assert {recipe.data.name for recipe in own.values()} == {"cifar100"}
    assert {label for label, _ in own} <= {run.recipe.label for run in by_name["accuracy"].runs}
    ending = sorted(recipe.method.label() for recipe in own.values() if recipe.until)
    assert ending == ["art-l1-0.98", "art-l2-0.98"]
    for figure in ("intersection", "layers", "gradients"):  # at what figures 1 to 3 of the paper show
        some = {"model": "resnet32", "sparsity": "0.9" if figure == "gradients" else "0.98"}
        runs = by_name[figure].only({"data": "cifar100", **some}).runs
        assert {(run.recipe.label, run.seed) for run in runs} <= own.keys()


@pytest.mark.parametrize(
    ("name", "of"), [("accuracy", "accuracy"), ("epochs", "regularized_epochs"), ("intersection", "mask_intersection")]
)
def test_an_experiment_has_every_cell_of_its_table(name: str, of: str) -> None:
    (found,) = (Experiment.read(path) for path in FILES if path.stem == name)
    wanted = {recipe_of(cell).label for cell in table(of).itertuples()}
    assert {run.recipe.label for run in found.runs} == wanted
