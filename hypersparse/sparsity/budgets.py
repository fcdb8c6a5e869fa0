"""How many weights to keep: exact counts from a sparsity."""

from decimal import ROUND_FLOOR, Decimal

from hypersparse.errors import OptionError

PAPER_SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # of the tables in the HyperSparse paper


def check_sparsity(sparsity: float) -> float:
    """Return `sparsity` if it is a fraction in [0, 1), otherwise say what to pass."""
    if isinstance(sparsity, bool) or not 0 <= sparsity < 1:
        hint = f" For {sparsity:g} % sparsity pass {sparsity / 100:g}." if 1 < sparsity < 100 else ""
        hint = " That leaves no weight." if sparsity == 1 else hint
        raise OptionError(
            f"`sparsity` is the fraction of weights removed and must be in [0, 1); got {sparsity:g}.{hint}"
        )
    return sparsity


def keep_count(total: int, sparsity: float) -> int:
    """Weights that remain of `total`: `total - floor(sparsity * total)`, the product taken in decimal.

    At least one remains, whatever the sparsity.

    >>> keep_count(90, 0.7)  # 0.7 * 90 is 62.99999999999999 in binary floating point
    27
    >>> keep_count(1_855_584, 0.98)
    37112
    """
    removed = (Decimal(repr(float(check_sparsity(sparsity)))) * total).to_integral_value(ROUND_FLOOR)
    return total - int(removed)
