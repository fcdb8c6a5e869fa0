"""Techniques that any method can be trained with: averaged weights, S2-SAM, distillation, factored weights."""
