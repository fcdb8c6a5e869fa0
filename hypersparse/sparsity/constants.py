"""Named constants."""

from math import atanh, sqrt

SHARPEST_BEND = atanh(1 / sqrt(3))  # where tanh' bends most; 0.6585 in the paper
