"""`hypersparse find`: the sparsest network that holds an accuracy."""

from dataclasses import dataclass
from pathlib import Path

import typer

from hypersparse.analysis import plotting
from hypersparse.analysis.front import front
from hypersparse.cli.console import Console, table, table_console
from hypersparse.cli.formats import percent
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import RecipeOptions, parse_sparsities
from hypersparse.cli.session import Search
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.errors import OptionError
from hypersparse.runs.find import Found, most_trainings
from hypersparse.runs.find import find as search_levels

LEVELS = "0.8,0.9,0.95,0.97,0.98,0.99,0.995,0.998"
NOTHING_FOUND = 1  # exit code


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is searched, and where the picture goes."""

    min_accuracy: float = option(..., "Accuracy on held-out images that the network must hold, such as 0.92.")
    sparsity: str = option(LEVELS, "The sparsities to choose from.")
    seed: int = option(0, "Random seed.", min=0)
    out: Path = option(Path("front"), "The picture and its numbers, as OUT.png, OUT.svg and OUT.csv.", "--out", "-o")


@grouped
def find(goal: Goal, chosen: RecipeOptions, options: TrainingOptions) -> None:
    """Find the sparsest network that holds an accuracy on held-out images, and draw accuracy against sparsity.

    Copies of one dense network are pruned at all sparsities in one regularized phase of ART; a bisection fine-tunes a
    few of them, and from there ART goes on alone. Without --validation a sixth of the training images is held out. The
    same command resumes.
    """
    if not 0 < goal.min_accuracy <= 1:
        raise OptionError(f"`--min-accuracy` is a share in (0, 1], such as 0.92; got {goal.min_accuracy:g}.")
    levels, search = parse_sparsities(goal.sparsity), Search(chosen, options, goal.seed, method="art")
    train = search.trainer(most_trainings(levels))
    with search.session.stoppable(options.runs_dir):
        found = search_levels(search.recipe, goal.min_accuracy, levels, train, store=options.store, seed=goal.seed)
    picture, *_ = plotting.write(goal.out.parent, front(found, goal.min_accuracy, name=goal.out.name))
    _say(search.session.console, found, goal.min_accuracy, picture)


def _say(console: Console, found: Found, wanted: float, picture: Path) -> None:
    rows = [
        (f"{100 * point.sparsity:g} %", percent(point.held_out), percent(point.test), str(point.folder))
        for point in sorted(found.points, key=lambda point: point.sparsity)
    ]
    table_console().print(table("sparsity", ">held out", ">test", "run", rows=rows))
    console.say(f"picture: {picture}")
    if found.best is None:
        most = max(found.points, key=lambda point: point.held_out)
        console.say(
            f"No network holds {percent(wanted)} %. The most accurate one has {percent(most.held_out)} %, at "
            f"{100 * most.sparsity:g} %: ask for less, give lower sparsities, or train longer (--epochs)."
        )
        raise typer.Exit(NOTHING_FOUND)
    best = found.best
    console.say(
        f"The sparsest that holds {percent(wanted)} %: {100 * best.sparsity:g} % with {percent(best.held_out)} %."
    )
    console.say(f"next:  hypersparse export {best.folder} -o model.hsp")
