"""Several processes that train one network: what they agree on, and weights that are spread over them.

All of the package's own communication is in here.
"""

from hypersparse.distributed.ranks import Ranks, average_statistics_

__all__ = ["Ranks", "average_statistics_"]
