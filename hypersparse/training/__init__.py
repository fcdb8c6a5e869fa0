"""The only training loop, and what it stands on: steps, evaluation, checkpoints, the machine."""
