"""Weights of peft's adapters, which stay dense, and modules whose place their copies take."""

from torch import nn

ADAPTER = "of an adapter, which is added to a layer's weight"
REPLACED = "replaced by a trained copy in `modules_to_save`"
LAYER, WRAPPER = "peft.tuners.tuners_utils.BaseTunerLayer", "peft.utils.other.ModulesToSaveWrapper"


def adapter_weights(model: nn.Module) -> dict[str, str]:
    """Why weights that peft has added or replaced are not prunable, by name; what it has wrapped is not among them."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        kinds = type_names(module)
        dot = path and f"{path}."
        if LAYER in kinds:
            for name, _ in module.named_parameters():
                if not name.startswith("base_layer."):
                    found[dot + name] = ADAPTER
        elif WRAPPER in kinds:
            for name, _ in module.named_parameters():
                if name.startswith("original_module."):
                    found[dot + name] = REPLACED
    return found


def type_names(module: nn.Module) -> set[str]:
    """The full names of a module's class and its bases, so that a package need not be installed.

    >>> "torch.nn.modules.linear.Linear" in type_names(nn.Linear(2, 2))
    True
    """
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(module).__mro__}
