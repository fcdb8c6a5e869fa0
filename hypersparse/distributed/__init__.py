"""Training one network in several processes: decisions in common, and weights sharded over them.

All of the package's own communication is here.
"""

from hypersparse.distributed.ranks import Ranks, average_statistics_

__all__ = ["Ranks", "average_statistics_"]
