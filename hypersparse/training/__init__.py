"""The training loop and its parts: engines, loaders, evaluation, resume, the machine."""
