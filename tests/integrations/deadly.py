"""A network that cannot be built: whoever tries dies, as for want of memory."""

import os
import signal

from torch import nn


def build() -> nn.Module:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")
