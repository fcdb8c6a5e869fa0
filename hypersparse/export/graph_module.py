"""`to_module`: a `Graph` as an ordinary PyTorch module."""

from typing import Any

import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.export import aten_ops
from hypersparse.export.dry_run import dry_run
from hypersparse.export.operations import TORCH_OPERATIONS
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes
from hypersparse_runtime.names import MADE

MOST_CONTAINERS = 2**14  # modules that hold others; 1,024 names of 8,192 parts each would take 40 GB


class Network(nn.Module):
    """Runs a graph's operations in order. Layers have the names they had in the traced model.

    Inputs have `input_shape`, with a batch axis. Layers cannot be named `input_shape` or `about`. Private attributes
    have two underscores, so that Python adds the class's name.
    """

    input_shape: tuple[int, ...]
    about: dict[str, Any]

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.input_shape, self.about = tuple(graph.input_shape), dict(graph.about)
        self.__nodes = graph.nodes
        self.__layers: dict[str, str] = {}  # of nodes that are a module of torch's: where it is
        self.__containers = 0
        self.__needed_until = {name: place for place, node in enumerate(graph.nodes) for name in node.inputs}
        sides = shapes(graph)
        self.__output_shape = sides[graph.output]
        try:
            for node in graph.nodes:
                self._add_layer(graph, node, flat=len(sides[node.output]) == 1)
            for name, array in graph.tensors.items():
                self._add_tensor(name, torch.from_numpy(array.copy()))
        except (KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise ModelError(f"The network has names or arrays that no module can have: {error}") from None
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.input_shape:
            raise ModelError(
                f"This network is for inputs of the shape {self.input_shape} with a batch in front; "
                f"got {tuple(x.shape)}."
            )
        if self.about.get("batch") == 1 and len(x) != 1:  # traced for single inputs only
            each = [self(one) for one in torch.split(x, 1)] if len(x) else [x.new_zeros(0, *self.__output_shape)]
            return torch.cat(each)
        values: dict[str, Any] = {INPUT: x}
        for place, node in enumerate(self.__nodes):
            values[node.output] = self._run(node, [values[name] for name in node.inputs], x.shape[0])
            for name in node.inputs:
                if self.__needed_until[name] == place:
                    values.pop(name, None)
        result: Tensor = values[self.__nodes[-1].output]
        return result

    def _run(self, node: Node, inputs: list[Any], batch: int) -> Any:
        if node.output in self.__layers:
            return self.get_submodule(self.__layers[node.output])(*inputs)
        tensors = {role: self._tensor(name) for role, name in node.tensors.items()}
        if node.opaque:
            return aten_ops.call(node, inputs, tensors, batch)
        return TORCH_OPERATIONS[node.op].compute(node, inputs, tensors)

    def _add_layer(self, graph: Graph, node: Node, *, flat: bool) -> None:
        """Register a node's own module under the name in its arrays, if they are those of a torch module."""
        path, operation = node.tensors.get("weight", "").removesuffix(".weight"), TORCH_OPERATIONS.get(node.op)
        if operation is None or not path or MADE in path or path in self.__layers.values():
            return
        usual = {role: f"{path}.{operation.module_roles.get(role)}" for role in node.tensors}
        layer = operation.module(graph, node, flat=flat) if usual == dict(node.tensors) else None
        if layer is None or any(
            f"{path}.{own}" in graph.tensors and value is None for own, value in layer._parameters.items()
        ):
            return  # the layer would add a bias that the node does not have
        self.__layers[node.output] = path
        self._container(path.rpartition(".")[0]).add_module(path.rpartition(".")[2], layer)

    def _add_tensor(self, name: str, tensor: Tensor) -> None:
        if name.startswith(MADE):
            self.register_buffer(_attribute(name), tensor, persistent=False)
            return
        folder, _, own = name.rpartition(".")
        inside = self._container(folder)
        if tensor.is_floating_point() and not own.startswith("running_"):
            inside.register_parameter(own, nn.Parameter(tensor))
        else:
            inside.register_buffer(own, tensor)

    def _container(self, path: str) -> nn.Module:
        module: nn.Module = self
        for name in path.split(".") if path else ():
            if name not in module._modules:
                self.__containers += 1
                if self.__containers > MOST_CONTAINERS:
                    raise ModelError(f"The names of the arrays are in more than {MOST_CONTAINERS} modules.")
                module.add_module(name, nn.Module())
            module = module.get_submodule(name)
        return module

    def _tensor(self, name: str) -> Tensor:
        if name.startswith(MADE):
            return self.get_buffer(_attribute(name))
        folder, _, own = name.rpartition(".")
        found: Tensor = getattr(self.get_submodule(folder), own)
        return found


def _attribute(name: str) -> str:
    return "made_" + name.removeprefix(MADE).replace(".", "__")


def to_module(graph: Graph) -> Network:
    """The network as a module in evaluation mode, with copies of the graph's arrays.

    >>> import numpy as np
    >>> twice = Node("linear", (INPUT,), "y", {"weight": "twice.weight"})
    >>> to_module(Graph((1,), (twice,), {"twice.weight": np.full((1, 1), 2, np.float32)}))(torch.ones(3, 1)).tolist()
    [[2.0], [2.0], [2.0]]
    """
    try:
        sides = shapes(graph)
    except GraphError as error:
        raise ModelError(f"The network does not fit together: {error}") from None
    for node in graph.nodes:
        if node.opaque:
            aten_ops.function_of(node)
    _check_types(graph)
    dry_run(graph, sides)
    return Network(graph)


def _check_types(graph: Graph) -> None:
    """Check that layers multiply numbers of one type; opaque nodes may convert."""
    layers = [node for node in graph.nodes if node.weighted]
    types = {graph.tensors[name].dtype for node in layers for name in node.tensors.values()}
    if any(kind.kind != "f" for kind in types) or (len(types) > 1 and not any(node.opaque for node in graph.nodes)):
        came = ", ".join(sorted(map(str, types)))
        raise ModelError(f"The layers of a network should have arrays of one floating-point type; these are {came}.")
