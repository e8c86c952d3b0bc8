"""Sparse all-reduce for data-parallel training.

Workers exchange the few largest entries of their gradients instead of the whole gradient, agree bit for bit on the result, and
lose nothing: what is not sent stays in a residual and goes out later.

With PyTorch, one line in a script that uses DistributedDataParallel::

    import spardl.torch
    state = spardl.torch.register(model, density=0.01)

Without it, a :class:`Worker` says what to exchange and anything can move the bytes (:func:`drive`)::

    workers = [spardl.Worker("spardl", n, rank, 4) for rank in range(4)]
    spardl.allreduce(gradients, workers=workers)      # all of them in this process
"""

from ._drive import Received, Request, allreduce, drive
from ._native import (
    ConfigError,
    Message,
    ProtocolError,
    Round,
    SpardlError,
    Tuning,
    Worker,
    __version__,
    cost,
    decode,
    encode,
    explain,
    methods,
    tune,
)

__all__ = [
    "ConfigError",
    "Message",
    "ProtocolError",
    "Received",
    "Request",
    "Round",
    "SpardlError",
    "Tuning",
    "Worker",
    "__version__",
    "allreduce",
    "cost",
    "decode",
    "drive",
    "encode",
    "explain",
    "methods",
    "tune",
]
