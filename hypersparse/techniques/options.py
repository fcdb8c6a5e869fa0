"""`Techniques`: what training may use besides its method; all off by default."""

from typing import Literal

from hypersparse.errors import OptionError
from hypersparse.options import non_default, option, options

Phases = Literal["all", "last"]
OF = {  # which option switches a technique on, and the options that belong to it
    "ema": ("ema_images", "ema_phases"),
    "sam": ("sam_phases",),
    "distill": ("distill_temperature", "distill_divergence", "distill_phases", "teacher_decay", "teacher"),
    "reparametrize": ("reparametrize_balance", "reparametrize_phases"),
}


@options
class Techniques:
    """Training techniques that do not depend on the method."""

    ema: float = option(
        default=0.0, help="Decay per step of averaged weights, which are scored and are the result; 0: off.", ge=0, lt=1
    )
    ema_images: int = option(
        default=1024, help="Training images that re-estimate the batch norms of averaged weights; 0: all.", ge=0
    )
    ema_phases: Phases = option(default="all", help="Average in all phases, or in the last one.")
    sam: float = option(
        default=0.0, help="Radius of S2-SAM: gradients are taken this far along the previous gradient; 0: off.", ge=0
    )
    sam_phases: Phases = option(default="all", help="Use S2-SAM in all phases, or in the last one.")
    distill: float = option(
        default=0.0, help="Factor on the divergence from the teacher, added to the loss; 0: off.", ge=0
    )
    distill_temperature: float = option(default=2.0, help="Temperature of the outputs of both networks.", gt=0)
    distill_divergence: Literal["forward", "reverse"] = option(
        default="forward", help="KL(teacher || network) or KL(network || teacher)."
    )
    distill_phases: Phases = option(default="all", help="Distill in all phases after the pre-training, or in the last.")
    teacher_decay: float = option(
        default=0.99, help="Decay per step of the averaged dense network that is the run's own teacher.", ge=0, lt=1
    )
    teacher: str = option(default="", help="File with a teacher's weights; without one the run's own dense network.")
    teacher_digest: str = option(default="", help="SHA-256 of those weights.")
    reparametrize: int = option(default=0, help="Train weights as m * w, balanced every so many epochs; 0: off.", ge=0)
    reparametrize_balance: float = option(default=1.0, help="m^2 - w^2 after balancing.", gt=0)
    reparametrize_phases: Phases = option(default="all", help="Factor in all phases, or in the last one.")

    def __post_init__(self) -> None:
        changed = non_default(self)
        for name, belonging in OF.items():
            if lost := [other for other in belonging if other in changed and name not in changed]:
                raise OptionError(f"`{lost[0]}` belongs to the technique `{name}`, which is off; set `{name}` too.")
        if self.teacher and not self.teacher_digest:
            raise OptionError(
                f"`teacher` names a file of trained weights ({self.teacher}); `teacher_digest` must identify it: pass "
                "hypersparse.storage.weights_io.digest(teacher)."
            )

    @property
    def given_teacher(self) -> bool:
        """Whether the teacher is given, not the run's own dense network."""
        return bool(self.teacher_digest)
