"""`ScoringSamples`: the options of methods that score weights with training samples."""

from typing import Literal

import torch

from hypersparse.methods.task import Task
from hypersparse.options import option, options
from hypersparse.sparsity.scores import Batch


@options
class ScoringSamples:
    """Which training samples the weights are scored with; the defaults are the paper's for CIFAR."""

    data: Literal["per_class", "batch"] = option(
        default="per_class", help="Equally many samples of every class, or simply the first training batch."
    )
    per_class: int = option(default=10, help="For data=per_class: samples of every class in a pass.", ge=1)
    passes: int = option(default=1, help="For data=per_class: passes whose gradients are summed.", ge=1)

    def batches(self, task: Task, device: torch.device) -> list[Batch]:
        """The samples, a batch for each pass."""
        if self.data == "batch":
            return [task.first_batch(device)]
        return task.per_class(self.per_class, passes=self.passes, device=device)
