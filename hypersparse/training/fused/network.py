"""`FusedNetwork`: forward and backward pass of the convolutions of one or several runs, in fused operations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hypersparse.training.concurrency.cuda_streams import STREAMS
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.fused.operations import Norm, Normed, Operations, Sums
from hypersparse.training.fused.tilings import SMALLEST, fits
from hypersparse.training.fused.trace import Activation, Branch, TracedNetwork
from hypersparse.training.kernels.conv_tiling import Convolution

ALIGNED = 64  # numbers, so that kernels read the weights of every run 16 bytes at a time


@dataclass(frozen=True)
class Layer:
    """A convolution with its batch norm, of all runs."""

    source: int  # the activation that it reads
    convolution: Convolution
    weights: Tensor  # [runs, K, S, S, C] in the type of the images
    gradients: Tensor  # [runs, K, S, S, C] in float32
    norm: Norm


@dataclass(frozen=True)
class Site:
    """An activation of all runs: one or two layers, or a layer and an earlier activation."""

    layers: tuple[Layer, ...]
    shortcut: int | None
    pool: int


class FusedNetwork:
    """Computes the last activations of traced networks that have the same layers, and the gradients of their weights.

    Weights are copied in the type of the images before a step, and gradients are written to each run's flat memory.
    The runs do not influence each other: each gets the bits that it gets alone.
    """

    def __init__(
        self,
        networks: Sequence[TracedNetwork],
        memories: Sequence[FlatMemory],
        operations: Operations,
        *,
        batch: int,
        shape: Sequence[int],
        dtype: torch.dtype,
    ) -> None:
        self._operations, self._memories, self._networks = operations, memories, networks
        runs, total = len(networks), memories[0].weights.total
        device = _values(memories[0]).device
        row = math.ceil(total / ALIGNED) * ALIGNED
        self.copies = torch.empty(runs, row, dtype=dtype, device=device)[:, :total]  # of the weights
        self._gradients = torch.zeros(runs, row, device=device)[:, :total]
        self._rows = list(self._gradients)
        self._padded: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # of images with few channels
        self._other_gradients: list[tuple[Tensor, Tensor]] = []  # of norms and biases
        channels, height, width = shape
        self._images = torch.zeros(runs, batch, height, width, _padded(channels), dtype=dtype, device=device)
        self._counters = [
            branch.norm.num_batches_tracked
            for network in networks
            for branch in _branches(network)
            if branch.norm is not None and branch.norm.num_batches_tracked is not None
        ]
        self._side = STREAMS.take_for(self, device) if device.type == "cuda" else None
        self._in_use: list[Tensor] = []
        self._values: list[Tensor] = []  # the images, then all activations
        self._normed: list[tuple[Normed, ...]] = []
        sizes = activation_sizes(networks[0].activations, batch, shape)
        self.sites = tuple(self._site(index, sizes) for index in range(len(networks[0].activations)))
        fused = {id(branch.conv.weight) for network in networks for branch in _branches(network) if branch.conv}
        self._of_tails = [  # prunable weights whose gradients autograd makes
            (weight, part)
            for memory, row in zip(memories, self._rows, strict=True)
            for weight, part in zip(memory.weights.values(), memory.split(row), strict=True)
            if id(weight) not in fused
        ]

    def _site(self, index: int, sizes: Sequence[tuple[int, int, int]]) -> Site:
        activations = [network.activations[index] for network in self._networks]
        first = activations[0]
        numbers = [number for number, branch in enumerate(first.branches) if branch.conv is not None]
        layers = tuple(self._layer([each.branches[number] for each in activations], sizes) for number in numbers)
        shortcuts = [branch.source for branch in first.branches if branch.conv is None]
        return Site(layers, shortcuts[0] if shortcuts else None, first.pool)

    def _layer(self, branches: Sequence[Branch], sizes: Sequence[tuple[int, int, int]]) -> Layer:
        source = branches[0].source
        convs = [branch.conv for branch in branches if branch.conv is not None]
        convolution = convolution_of(convs[0], len(self._images[0]), sizes[source])
        weights, gradients = (self._view(values, convs[0]) for values in (self.copies, self._gradients))
        if weights.shape[-1] < convolution.channels:
            shape = (*weights.shape[:-1], convolution.channels)
            self._padded = weights.new_zeros(shape), gradients.new_zeros(shape), weights, gradients
            weights, gradients, _, _ = self._padded
        return Layer(source, convolution, weights, gradients, self._norm(branches))

    def _view(self, values: Tensor, conv: nn.Conv2d) -> Tensor:
        """The weights [runs, K, S, S, C] of a convolution in the memory [runs, total] of all."""
        begin = 0
        for weight in self._memories[0].weights.values():
            if weight is conv.weight:
                break
            begin += weight.numel()
        filters, channels, side, _ = conv.weight.shape
        return values[:, begin : begin + conv.weight.numel()].view(-1, filters, side, side, channels)

    def _norm(self, branches: Sequence[Branch]) -> Norm:
        norms = [branch.norm for branch in branches if branch.norm is not None]
        biases = [branch.conv.bias for branch in branches if branch.conv is not None and branch.conv.bias is not None]
        scales, shifts = (_stacked_([getattr(norm, name) for norm in norms]) for name in ("weight", "bias"))
        scale_gradients, shift_gradients = torch.zeros_like(scales), torch.zeros_like(shifts)
        for number, norm in enumerate(norms):
            self._other_gradients += [(norm.weight, scale_gradients[number]), (norm.bias, shift_gradients[number])]
        self._other_gradients.extend((bias, torch.zeros_like(bias)) for bias in biases)
        return Norm(
            scales=scales,
            shifts=shifts,
            means=_stacked_([norm.running_mean for norm in norms if norm.running_mean is not None]),
            variances=_stacked_([norm.running_var for norm in norms if norm.running_var is not None]),
            bias=_stacked_(biases) if biases else None,
            scale_gradients=scale_gradients,
            shift_gradients=shift_gradients,
            saved=scales.new_zeros(len(norms), 2, scales.shape[1]),
            momentum=norms[0].momentum or 0.0,
            epsilon=norms[0].eps,
        )

    def refresh_(self) -> None:
        """Copy the current weights, unless the optimizer did, and count the batch, before a step."""
        pairs = [pair for pair in zip(self.copies, self._memories, strict=True) if pair[1].copy is None]
        with torch.no_grad():
            if pairs:
                torch._foreach_copy_([copy for copy, _ in pairs], [_values(memory) for _, memory in pairs])
            if self._padded is not None:
                weights, _, source, _ = self._padded
                weights[..., : source.shape[-1]].copy_(source)
            if self._counters:
                torch._foreach_add_(self._counters, 1)

    @torch.no_grad()
    def forward(self, images: Sequence[Tensor]) -> Tensor:
        """The last activations [runs, N, H, W, C] of a batch [N, C, H, W] for each run."""
        for mine, given in zip(self._images, images, strict=True):
            mine[..., : given.shape[1]].copy_(given.movedim(1, -1))
        values, self._normed = [self._images], []
        for site in self.sites:
            normed = tuple(
                self._operations.conv(layer.convolution, values[layer.source], layer.weights, layer.norm)
                for layer in site.layers
            )
            shortcut = None if site.shortcut is None else values[site.shortcut]
            first, second = _two(normed)
            values.append(self._operations.activate(first, second, shortcut, pool=site.pool))
            self._normed.append(normed)
        self._values = values
        return values[-1]

    @torch.no_grad()
    def backward_(self, gradients: Tensor) -> None:
        """Set the gradients of all weights from those of the last activations."""
        pending = _Pending(self.sites, gradients)
        while self._normed:
            index, normed = len(self._normed), self._normed.pop()
            site, activations = self.sites[index - 1], self._values.pop()
            sums = pending.finished.pop(index, None)
            if sums is None:
                first, second = _two(normed)
                given = pending.waiting.pop(index)
                sums = self._operations.relu_gradient(given, activations, first, second, pool=site.pool)
            if site.shortcut is not None:
                pending.add(site.shortcut, sums.gradients)
            for number, (layer, each) in enumerate(zip(site.layers, normed, strict=True), start=1):
                through = self._operations.norm_gradient(sums, each, number=number)
                self._weight_gradient_(layer, self._values[layer.source], through)
                if layer.source > 0:
                    self._pass_on(layer, through, pending)
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)
            self._in_use.clear()
        self._give_gradients_()

    def _weight_gradient_(self, layer: Layer, images: Tensor, gradients: Tensor) -> None:
        """The gradients of weights, beside those of activations, which do not wait for them."""
        if self._side is None:
            self._operations.conv_weight_gradient_(layer.convolution, images, gradients, layer.gradients)
            return
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            self._operations.conv_weight_gradient_(layer.convolution, images, gradients, layer.gradients)
        self._in_use += [images, gradients]  # not freed for the other stream meanwhile

    def _pass_on(self, layer: Layer, through: Tensor, pending: "_Pending") -> None:
        """Add the gradient of the activation that a layer reads; with the last one, go on through its ReLU."""
        source = layer.source
        skip, is_last = pending.take(source)
        if is_last and self.sites[source - 1].pool == 1:
            first, second = _two(self._normed[source - 1])
            pending.finished[source] = self._operations.conv_relu_gradient(
                layer.convolution, through, layer.weights, skip, self._values[source], first, second
            )
        else:
            pending.waiting[source] = self._operations.conv_data_gradient(
                layer.convolution, through, layer.weights, skip
            )

    def _give_gradients_(self) -> None:
        if self._padded is not None:
            _, gradients, _, target = self._padded
            target.copy_(gradients[..., : target.shape[-1]])
        for weight, part in self._of_tails:
            part.zero_() if weight.grad is None else part.copy_(weight.grad)
        for memory, row in zip(self._memories, self._rows, strict=True):
            memory.use_gradients_(row)
        for parameter, gradient in self._other_gradients:
            parameter.grad = gradient


class _Pending:
    """Gradients on their way to the activations that earlier layers made."""

    def __init__(self, sites: Sequence[Site], gradients: Tensor) -> None:
        self.waiting: dict[int, Tensor] = {len(sites): gradients}  # of activations
        self.finished: dict[int, Sums] = {}  # through the ReLU of an activation
        self._left = [0] * (len(sites) + 1)
        for site in sites:
            for source in [layer.source for layer in site.layers] + [site.shortcut] * (site.shortcut is not None):
                self._left[source or 0] += 1

    def add(self, source: int, gradients: Tensor) -> None:
        """The gradient of an activation that is added elsewhere."""
        before, _ = self.take(source)
        self.waiting[source] = gradients if before is None else before + gradients

    def take(self, source: int) -> tuple[Tensor | None, bool]:
        """What was added so far, and whether the next part is the last one."""
        self._left[source] -= 1
        return self.waiting.pop(source, None), self._left[source] == 0


def fits_kernels(network: TracedNetwork, *, batch: int, shape: Sequence[int]) -> bool:
    """Whether the kernels take every convolution of a network for batches of this size."""
    sizes = activation_sizes(network.activations, batch, shape)
    branches = _branches(network)
    pools = [size for size, each in zip(sizes[1:], network.activations, strict=True) if each.pool > 1]
    return all(
        fits(convolution_of(branch.conv, batch, sizes[branch.source])) for branch in branches if branch.conv is not None
    ) and all(batch * height * width % SMALLEST == 0 for _, height, width in pools)


def activation_sizes(activations: Sequence[Activation], batch: int, shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """Channels, height and width of the images, and of each activation."""
    channels, height, width = shape
    sizes = [(channels, height, width)]
    for activation in activations:
        branch = next(branch for branch in activation.branches if branch.conv is not None)
        assert branch.conv is not None
        made = convolution_of(branch.conv, batch, sizes[branch.source])
        sizes.append((made.filters, made.out_height // activation.pool, made.out_width // activation.pool))
    return sizes


def convolution_of(conv: nn.Conv2d, batch: int, size: tuple[int, int, int]) -> Convolution:
    """The sizes of a convolution; images with few channels are padded to the fewest that kernels take."""
    channels, height, width = size
    (side, _), (stride, _) = conv.kernel_size, conv.stride
    return Convolution(batch, _padded(channels), conv.out_channels, height, width, side, stride, int(conv.padding[0]))


def _padded(channels: int) -> int:
    return max(channels, SMALLEST)


def _values(memory: FlatMemory) -> Tensor:
    assert memory.values is not None
    return memory.values


def _branches(network: TracedNetwork) -> list[Branch]:
    return [branch for activation in network.activations for branch in activation.branches]


def _stacked_(tensors: Sequence[Tensor]) -> Tensor:
    """Put tensors of several runs into one memory [runs, ...]; they become its rows."""
    if len(tensors) == 1:
        return tensors[0].detach()[None]
    stacked = torch.stack([tensor.detach() for tensor in tensors])
    for tensor, row in zip(tensors, stacked, strict=True):
        tensor.data = row
    return stacked


def _two(normed: tuple[Normed, ...]) -> tuple[Normed, Normed | None]:
    return normed[0], normed[1] if len(normed) > 1 else None
