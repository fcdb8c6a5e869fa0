"""Techniques for any method: averaged weights, S2-SAM, distillation, factored weights."""
