"""Dense: plain training, the reference every sparse network is compared with."""

from collections.abc import Sequence
from typing import ClassVar

from hypersparse.methods.base import Method, Phase
from hypersparse.options import options


@options
class Dense(Method):
    """Train all weights; prune nothing."""

    name: ClassVar[str] = "dense"
    citation: ClassVar[str] = "none: ordinary training"

    def plan(self, epochs: int) -> Sequence[Phase]:
        return [Phase("train", epochs=epochs)]
