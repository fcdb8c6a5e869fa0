"""Figures of the paper, drawn from runs of ART."""
