"""The divergence from a teacher, by hand, and whose teacher it is."""

from math import log

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import ART, GMP, Dense, LoopError, Magnitude, OptionError, Task, Techniques
from hypersparse.techniques.distillation import Teacher, divergence
from tests.techniques.one_layer import one_layer, step


def test_both_divergences_by_hand() -> None:
    teacher = torch.tensor([[log(3.0), 0.0]])  # 3/4 and 1/4
    network = torch.tensor([[0.0, 0.0]])  # 1/2 and 1/2
    forward = 0.75 * log(1.5) + 0.25 * log(0.5)
    reverse = 0.5 * log(2 / 3) + 0.5 * log(2.0)
    assert float(divergence(network, teacher, temperature=1.0, kind="forward")) == pytest.approx(forward)
    assert float(divergence(network, teacher, temperature=1.0, kind="reverse")) == pytest.approx(reverse)
    warm = float(divergence(2 * network, 2 * teacher, temperature=2.0, kind="forward"))
    assert warm == pytest.approx(4 * forward)  # the same distributions, times the squared temperature


def test_the_gradient_by_hand() -> None:
    """Of KL(teacher || network) by the outputs: softmax minus the teacher's."""
    outputs = torch.zeros(1, 2, requires_grad=True)
    divergence(outputs, torch.tensor([[log(3.0), 0.0]]), temperature=1.0, kind="forward").backward()
    assert outputs.grad is not None
    assert outputs.grad[0].tolist() == pytest.approx([-0.25, 0.25])


def test_the_own_teacher_is_the_average_of_the_pre_training() -> None:
    method = Magnitude(sparsity=0.5, dense_epochs=1)
    sparsifier = one_layer([1.0, 4.0], method=method, distill=2.0, teacher_decay=0.5)
    inputs = torch.tensor([[1.0, 0.0]])
    outputs = torch.zeros(1, 1)
    assert sparsifier.distillation_loss(inputs, outputs).item() == 0.0  # in the pre-training
    step(sparsifier, [0.0, 0.0])
    step(sparsifier, [10.0, 0.0])  # (0, 4); the mean of both steps is (0.5, 4)
    sparsifier.finish_epoch()
    teacher = sparsifier.state.memory.get(Teacher)
    assert teacher is not None
    assert teacher.tensors["weight"].tolist() == [[0.5, 4.0]]
    sparsifier.begin_epoch()
    term = sparsifier.extra_loss
    assert term is not None
    assert term.teacher(inputs).item() == 0.5
    assert not term.teacher.weight.requires_grad
    for _ in range(3):
        sparsifier.begin_epoch()
        sparsifier.distillation_loss(inputs, outputs)
        step(sparsifier, [0.0, 0.0])
        sparsifier.finish_epoch()
    assert sparsifier.done
    assert sparsifier.state.memory.get(Teacher) is None


def test_a_given_teacher_and_one_that_comes_trained() -> None:
    model, teacher = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    task = Task(nn.functional.cross_entropy, [(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))])
    techniques = Techniques(distill=1.0)
    given = hypersparse.attach(model, optimizer, GMP(), epochs=2, techniques=techniques, teacher=teacher)
    given.begin_epoch()
    inputs = torch.tensor([[1.0, 2.0]])
    assert given.distillation_loss(inputs, teacher(inputs)).item() == pytest.approx(0.0)
    assert given.state.memory.get(Teacher) is None
    given.detach()
    trained = hypersparse.attach(
        model, optimizer, ART(sparsity=0.5), epochs=1, task=task, trained=True, techniques=techniques
    )
    trained.begin_epoch()
    assert trained.distillation_loss(inputs, model(inputs)).item() == pytest.approx(0.0)


def test_the_term_of_a_batch_by_hand() -> None:
    """Factor x T^2 x KL, a mean over the images; the teacher has no gradient."""
    model, teacher = nn.Linear(1, 2, bias=False), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        teacher.weight.copy_(torch.tensor([[2 * log(3.0)], [0.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    techniques = Techniques(distill=3.0, distill_temperature=2.0)
    sparsifier = hypersparse.attach(model, optimizer, GMP(), epochs=2, techniques=techniques, teacher=teacher)
    sparsifier.begin_epoch()
    inputs, outputs = torch.tensor([[1.0], [0.0]]), torch.zeros(2, 2, requires_grad=True)
    term = sparsifier.distillation_loss(inputs, outputs)
    divergence_of_one = 0.75 * log(1.5) + 0.25 * log(0.5)  # of 3/4 and 1/4 from 1/2 and 1/2; the other image has 0
    assert term.item() == pytest.approx(3 * 4 * divergence_of_one / 2)
    term.backward()
    assert outputs.grad is not None
    assert outputs.grad[0].tolist() == pytest.approx([-3 * 2 * 0.25 / 2, 3 * 2 * 0.25 / 2])
    assert outputs.grad[1].tolist() == pytest.approx([0.0, 0.0])
    assert teacher.weight.grad is None


def test_what_cannot_work_is_said() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(OptionError, match=r"this plan has none\. Pass a `teacher`"):
        hypersparse.attach(model, optimizer, Dense(), epochs=1, techniques=Techniques(distill=1.0))
    with pytest.raises(OptionError, match="`teacher` is for the technique `distill`"):
        hypersparse.attach(model, optimizer, Dense(), epochs=1, teacher=model)
    techniques = Techniques(distill=1.0, teacher_digest="0")
    with pytest.raises(OptionError, match="pass `teacher=model` instead of the file of one"):
        hypersparse.attach(model, optimizer, Dense(), epochs=1, techniques=techniques)
    with pytest.raises(OptionError, match="`teacher_digest` must identify it"):
        Techniques(distill=1.0, teacher="x.safetensors")


def test_a_loop_that_leaves_the_term_out_is_told() -> None:
    sparsifier = one_layer([1.0, 4.0], method=Magnitude(sparsity=0.5, dense_epochs=1), distill=1.0)
    step(sparsifier, [0.0, 0.0])
    with pytest.raises(LoopError, match=r"`sparsifier.distillation_loss\(inputs, outputs\)` was not called"):
        sparsifier.finish_epoch()
