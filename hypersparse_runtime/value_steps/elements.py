"""Steps element by element: copies, functions, and arithmetic with two values."""

from dataclasses import dataclass

import numpy as np

from hypersparse_runtime.checked_step import Step
from hypersparse_runtime.functions import FUNCTIONS, KERNEL_OPERATORS
from hypersparse_runtime.sparse_layers import Array, ValueStep
from hypersparse_runtime.value_steps.base import (
    Words,
    Writing,
    addresses,
    all_addresses,
    check_operand,
    checked_runs,
    runs_of,
)


@dataclass(frozen=True, eq=False)
class CopyStep(ValueStep):
    """Copies elements: for all or some output elements, the position in the input or in constants."""

    kind = "copy"
    places: Array
    constant: Array | None = None
    targets: Array | None = None  # places of the output; None: all of them in their order

    def words(self, at: Writing) -> Words:
        targets = all_addresses(at.after) if self.targets is None else addresses(at.after, self.targets)
        constant = self.constant is not None
        sources = self.places.astype(np.int64) if constant else addresses(at.before, self.places)
        order = np.argsort(targets, kind="stable")
        runs, steps = runs_of(targets[order], sources[order])
        words = {"rows": len(runs), "channels": at.tables.add(runs), "stride_x": steps[1], "blocks": len(sources)}
        return words if self.constant is None else words | at.constants(self.constant)

    @classmethod
    def check(cls, step: Step) -> None:
        runs = checked_runs(step, 3, "runs")
        check_operand(step, runs, 0, at=step.output, stride=1, what="output")
        source = -1 if step.plane >= 0 else step.input
        check_operand(step, runs, 1, at=source, stride=step.stride_x, what="input")


@dataclass(frozen=True, eq=False)
class ElementwiseStep(ValueStep):
    """A function of each element, by its name in `functions`."""

    kind, alike = "elementwise", True
    function: str
    parameter: float

    def words(self, at: Writing) -> Words:
        before, after = at.before, at.after
        if (
            FUNCTIONS[self.function].keeps_zero
            and before.plane == after.plane
            and before.pitch == after.pitch
            and (before.rows or before.padded or not after.padded)
        ):
            runs = np.array([[0, 0, (before.channels - 1) * before.plane + before.run]])  # what pads it stays zero
        else:
            runs, _ = runs_of(all_addresses(after), all_addresses(before))
        words = {"rows": len(runs), "channels": at.tables.add(runs), "kernel_y": [*FUNCTIONS].index(self.function)}
        return words | {"bias": at.floats(self.parameter), "blocks": 4 * at.elements}

    @classmethod
    def check(cls, step: Step) -> None:
        runs = checked_runs(step, 3, "runs")
        step.need(0 <= step.kernel_y < len(FUNCTIONS), "function")
        step.table(step.bias, 1, "bias")
        for column, at in ((0, step.output), (1, step.input)):
            check_operand(step, runs, column, at=at, stride=1, what="runs")


@dataclass(frozen=True, eq=False)
class ArithmeticStep(ValueStep):
    """The input combined with another value or an array of constants, given the second operand's positions."""

    kind, alike = "arithmetic", True
    operator: str
    places: Array
    other: str | None = None
    constant: Array | None = None

    def words(self, at: Writing) -> Words:
        if self.constant is not None:
            second = self.places.astype(np.int64)
            words = at.constants(self.constant)
        else:
            second = addresses(at.placed.values[str(self.other)], self.places)
            words = {"residual": at.places.of(str(self.other))}
        runs, steps = runs_of(all_addresses(at.after), all_addresses(at.before), second)
        words |= {"rows": len(runs), "channels": at.tables.add(runs)}
        words |= {"kernel_y": KERNEL_OPERATORS.index(self.operator)}
        return words | {"stride_y": steps[1], "stride_x": steps[2], "blocks": len(second)}

    @classmethod
    def check(cls, step: Step) -> None:
        runs = checked_runs(step, 4, "runs")
        step.need(0 <= step.kernel_y < len(KERNEL_OPERATORS), "operator")
        check_operand(step, runs, 0, at=step.output, stride=1, what="output")
        check_operand(step, runs, 1, at=step.input, stride=step.stride_y, what="input")
        check_operand(step, runs, 2, at=step.residual, stride=step.stride_x, what="second operand")
