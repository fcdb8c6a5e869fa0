"""`Traffic`: counts the bytes that a process passes to the collectives of torch.distributed."""

from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

OUTPUTS_FIRST = {  # operations whose first argument is what they fill
    *("allgather_", "_allgather_base_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_"),
    *("reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_"),
}


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside the block, counts the bytes of this process's tensors in collectives.

    On a ring of N ranks, an all-reduce sends 2 (N - 1) / N times as many bytes. A reduce-scatter sends (N - 1) / N
    times as many, an all-gather N - 1 times. Network headers come on top.

    >>> with Traffic() as traffic:
    ...     total = Tensor([1.0, 2.0]).sum()
    >>> traffic.total  # nobody was told
    0
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()  # by operation
        self.bytes: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Bytes of all operations."""
        return self.bytes.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func._schema.name.partition("::")[2]
            given = [leaf for leaf in tree_leaves(args[1 if name in OUTPUTS_FIRST else 0]) if isinstance(leaf, Tensor)]
            self.calls[name] += 1
            self.bytes[name] += sum(tensor.numel() * tensor.element_size() for tensor in given)
        return func(*args, **(kwargs or {}))
