"""`Rewiring`: the options of methods that fine-tune a mask and may let it change at first."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hypersparse.errors import OptionError
from hypersparse.methods.base import Phase
from hypersparse.methods.dynamic import move_
from hypersparse.options import option, options

EVERY = 500  # steps; in the first half of fine-tuning on CIFAR they are 124 moves


@options
class Rewiring:
    """Whether weights go on moving, by RigL's rule, in the first half of fine-tuning."""

    rewire: float = option(
        default=0.0,
        help="Of a layer's kept weights, how many move in the first half of fine-tuning, from where they are small to "
        "where gradients are large; falls to 0 along a cosine. 0: the mask stays.",
        ge=0,
        lt=1,
    )
    rewire_every: int = option(default=EVERY, help="For rewire: steps between two moves.", ge=1)

    def __post_init__(self) -> None:
        if self.rewire_every != EVERY and not self.rewire:
            raise OptionError(
                "`rewire_every` says how often weights move in fine-tuning, and with `rewire` 0 none does; pass "
                "`rewire` too, such as 0.3."
            )

    def before_fine_tuning(self) -> str:
        """All options that decide what comes before it."""
        return repr(replace(self, rewire=0.0, rewire_every=EVERY))

    def fine_tuning(self, epochs: int) -> Sequence[Phase]:
        """The phases of fine-tuning; the learning rate falls as over one."""
        moving = epochs // 2 if self.rewire else 0
        if not moving:
            return [Phase("fine-tune", epochs=epochs, restart=True)]
        return [
            Phase(
                "rewire",
                epochs=moving,
                adjust=partial(move_, fraction=self.rewire, epochs=moving, reader="`rewire`"),
                adjust_every=self.rewire_every,
                adjust_replaces_step=self.rewire_every > 1,  # otherwise nothing would be learnt
                restart=True,
                schedule_epochs=epochs,
            ),
            Phase("fine-tune", epochs=epochs - moving, schedule_epochs=epochs, schedule_start=moving),
        ]
