"""Replace parametrized weights, such as those of weight and spectral norms, by plain weights."""

import copy

from torch import nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


def with_parametrizations_folded(model: nn.Module) -> nn.Module:
    """A copy of the model without parametrizations; the model itself if it has none.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> sorted(with_parametrizations_folded(layer).state_dict())
    ['bias', 'weight']
    """
    if not any(parametrize.is_parametrized(module) or _hooks(module) for module in model.modules()):
        return model
    for module in model.modules():
        for hook in _hooks(module):  # which recompute the weight at every call; only leaves can be copied
            setattr(module, hook.name, getattr(module, hook.name).detach())
    plain = copy.deepcopy(model).eval()  # a spectral norm takes another step of its power iteration where it is trained
    for module in [*plain.modules()]:
        names = [*getattr(module, "parametrizations", ())]
        if names:  # the copy has its class in common with the model, from which the weight would be taken
            module.__class__ = _own_class(type(module))
        for name in names:
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
        for hook in _hooks(module):
            remove = remove_weight_norm if isinstance(hook, WeightNorm) else remove_spectral_norm
            remove(module, hook.name)
    return plain


def _own_class(kind: type[nn.Module]) -> type[nn.Module]:
    inside = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    made: type[nn.Module] = type(kind.__name__, kind.__bases__, inside)
    return made


def _hooks(module: nn.Module) -> list[WeightNorm | SpectralNorm]:
    """The hooks of norms that are older than parametrizations."""
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm | SpectralNorm)]
