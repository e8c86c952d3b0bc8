"""Sparse gradient reduction for PyTorch: a hook for DDP, and the same for plain loops.

One line in a script that uses DistributedDataParallel::

    state = spardl.torch.register(model, density=0.01)

Save ``state.state_dict()`` on every rank with the model, and load it before the first step of a continued run. :class:`Sync`
reduces any named tensors, :class:`OuterStep` exchanges what many local steps changed, :func:`fsdp_hook` is for FSDP2.
:func:`hand_over` takes momentum out of steps that hold mass back.
"""

from ._config import Config
from ._ddp import State, hook, register
from ._engine import PeerError
from ._fsdp import FsdpState, fsdp_hook
from ._handover import HandOver, hand_over
from ._outer import OuterStep
from ._sync import Sync

__all__ = [
    "Config",
    "FsdpState",
    "HandOver",
    "OuterStep",
    "PeerError",
    "State",
    "Sync",
    "fsdp_hook",
    "hand_over",
    "hook",
    "register",
]
