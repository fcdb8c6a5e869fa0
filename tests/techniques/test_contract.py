"""What every technique promises, with several methods: exact zeros, resume to the same bits, no waiting, its cost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse import Techniques
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import digest
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.methods.contract import Run, dropped_are_plus_zero, same, sgd
from tests.methods.test_contract_steps import NoWaiting
from tests.training.small import StopAfter, small
from tests.training.test_capture import WIDER, begun, pretended_gpu  # noqa: F401
from tests.training.test_loop import same_network

pytestmark = [
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it compiles
]
TECHNIQUES: dict[str, dict[str, Any]] = {
    "ema": {"ema": 0.9, "ema_images": 32},
    "sam": {"sam": 0.05},
    "distill": {"distill": 1.0, "distill_divergence": "reverse"},
    "reparametrize": {"reparametrize": 1},
    "all": {"ema": 0.9, "sam": 0.05, "distill": 1.0, "reparametrize": 2},
}
CPU = Machine(device="cpu", checkpoint_seconds=0.0)
METHODS = ("art", "rigl", "gmp", "topkast", "acdc", "st3")


def techniques_of(name: str, method: str) -> Techniques | None:
    """Those that the method can have; None where it cannot have the one."""
    options = dict(TECHNIQUES[name])
    if method != "art":
        options.pop("distill", None)  # without pre-training they would need a teacher
        options.pop("distill_divergence", None)
    if method in ("topkast", "st3"):
        options.pop("reparametrize", None)
    return Techniques(**options) if options else None


PAIRS = [(name, method) for name in TECHNIQUES for method in METHODS if techniques_of(name, method)]


class Distilled(Run):
    """The contract's training, with the term of distillation in its loss."""

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        outputs = self.model(inputs)
        self.sparsifier.observe(outputs, labels)
        return nn.functional.cross_entropy(outputs, labels) + self.sparsifier.distillation_loss(inputs, outputs)

    def train_on(self, *, stop_after: int | None = None) -> None:
        for epochs, _ in enumerate(self.sparsifier.epochs(), 1):
            self.model.train()
            for inputs, labels in self.loader:
                self.optimizer.zero_grad()
                self.loss(inputs, labels).backward()  # type: ignore[no-untyped-call]
                with NoWaiting() if not self.acts() else torch.enable_grad():  # type: ignore[no-untyped-call]
                    self.optimizer.step()
                dropped_are_plus_zero(self.sparsifier)
            if epochs == stop_after:
                return

    def acts(self) -> bool:
        return self.sparsifier.phase.acts_in(self.sparsifier.state.step)


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_in_a_users_loop(tmp_path: Path, name: str, method: str) -> None:
    techniques = techniques_of(name, method)
    whole = Distilled(method, sgd, techniques=techniques)
    whole.train_on()
    assert whole.sparsifier.mask is not None
    assert whole.sparsifier.mask.kept == whole.sparsifier.mask.total - int(0.8 * whole.sparsifier.mask.total)
    dropped_are_plus_zero(whole.sparsifier)
    parts = Distilled(method, sgd, techniques=techniques)
    parts.train_on(stop_after=2)
    torch.save(parts.state(), tmp_path / "saved")
    resumed = Distilled(method, sgd, seed=1, techniques=techniques)
    resumed.load(tmp_path / "saved")
    resumed.train_on()
    assert same(resumed.state(), whole.state())


def recipe_of(name: str) -> Recipe:
    return small(techniques=TECHNIQUES[name])


@pytest.mark.parametrize("name", TECHNIQUES)
def test_stopped_anywhere_and_resumed_to_the_same_bits(tmp_path: Path, name: str) -> None:
    recipe = recipe_of(name)
    train(recipe, 0, CPU, tmp_path / "whole")
    stops = 0
    while True:
        callback = StopAfter(7)  # in the middle of an epoch, another place each time
        try:
            train(recipe, 0, CPU, tmp_path / "parts", callback=callback, stop=callback.request)
            break
        except Stopped:
            stops += 1
    assert stops >= 2
    assert same_network(tmp_path / "whole", tmp_path / "parts")
    plain = train(small(), 0, CPU, tmp_path / "plain")
    assert not same_network(tmp_path / "whole", tmp_path / "plain")
    assert RunFolder(tmp_path / "whole").result()["kept"] == plain["kept"]  # type: ignore[index]


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_capture_that_fails_leaves_no_trace(tmp_path: Path, name: str) -> None:
    training = begun(small(techniques=TECHNIQUES[name], model=WIDER), tmp_path)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    remembered = [tensor.clone() for tensor in training.sparsifier.state.memory.tensors()]
    assert remembered
    training.step_of_phase()
    after = training.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    now = training.sparsifier.state.memory.tensors()
    assert all(torch.equal(*pair) for pair in zip(now, remembered, strict=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("name", TECHNIQUES)
def test_captured_it_trains_as_line_by_line(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    recipe = recipe_of(name)
    for engine in ("cudagraph", "eager"):
        train(recipe, 0, Machine(device="cuda", engine=engine), tmp_path / engine)  # type: ignore[arg-type]
    assert "cannot be captured" not in caplog.text
    losses = [[entry["loss"] for entry in RunFolder(tmp_path / engine).log()] for engine in ("cudagraph", "eager")]
    assert losses[0][:2] == pytest.approx(losses[1][:2], rel=0.1)


def test_the_cost_is_counted(tmp_path: Path) -> None:
    """Of distillation a teacher's forward pass, of averages the passes for batch norms, of the others nothing."""
    costs = {}
    for name in ("", "sam", "distill", "ema", "reparametrize"):
        recipe = small(techniques=TECHNIQUES.get(name, {}))
        train(recipe, 0, CPU, tmp_path / name / "run", record=False)
        costs[name] = RunFolder(tmp_path / name / "run").log()
    image = costs[""][0]["flops"] / 128 / 3  # type: ignore[operator]
    assert [entry["flops"] for entry in costs["distill"]] == [
        128 * image * (3 if entry["phase"] == "pre-train" else 4) for entry in costs["distill"]
    ]
    for name in ("sam", "reparametrize"):
        assert {entry["flops"] for entry in costs[name]} == {128 * image * 3}
        assert costs[name][0]["scoring_flops"] == 0
    # 32 images: an epoch's end of pre-training, the decision whether pruning is free, and the end of a phase.
    assert costs["ema"][0]["scoring_flops"] == 32 * image
    penalized = [entry for entry in costs["ema"] if entry["phase"] == "regularize"]
    assert penalized[0]["scoring_flops"] % (32 * image) == pytest.approx(0)
    assert penalized[0]["scoring_flops"] > costs[""][2]["scoring_flops"]  # type: ignore[operator]


def test_a_given_teacher_is_read_from_its_file(tmp_path: Path) -> None:
    train(small(method={"name": "dense"}), 0, CPU, tmp_path / "dense")
    file = RunFolder(tmp_path / "dense").final_file
    given = {"distill": 1.0, "teacher": str(file), "teacher_digest": digest(file)}
    recipe = small(method={"name": "gmp", "sparsity": 0.5}, techniques=given)
    entry = train(recipe, 0, CPU, tmp_path / "run")
    assert entry["kept"] == entry["total"] // 2 + entry["total"] % 2
    elsewhere = small(method={"name": "gmp", "sparsity": 0.5}, techniques={**given, "teacher": "other"})
    assert recipe.key == elsewhere.key
    assert recipe.key != small(method={"name": "gmp", "sparsity": 0.5}).key
