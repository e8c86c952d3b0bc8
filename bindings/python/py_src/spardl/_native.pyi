"""The native half of spardl: workers, methods and the codec."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, final

from typing_extensions import Buffer

from ._drive import Received, Request

__version__: str

class DLPack(Protocol):
    """An array of torch, NumPy, JAX, ...: contiguous float32, bfloat16 or float16 in CPU memory."""

    def __dlpack__(self) -> Any: ...

class SpardlError(Exception):
    """The root of the errors of this package."""

class ConfigError(SpardlError):
    """Something was asked for that cannot be; the message says what can."""

class ProtocolError(SpardlError):
    """A peer, or the wire between us, broke the plan; abort brings back the state before the step."""

class Cost(TypedDict):
    """What a step costs the busiest worker at most."""

    rounds_min: int
    rounds_max: int
    messages: int
    bytes_max: int
    dense_bytes: int

class Stats(TypedDict):
    """What the last step of a worker cost it."""

    rounds: int
    messages: int
    bytes_sent: int
    nnz: int
    rescans: int
    selected: int

@final
class Message(Buffer):
    """Bytes to send; has the buffer protocol, so nothing is copied: ``memoryview(message)``, ``torch.frombuffer(message, ...)``.

    ``Message(len)`` is room to receive into.
    """

    def __new__(cls, len: int) -> Message: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Round:
    """What a worker sends and awaits before it can go on."""

    @property
    def number(self) -> int:
        """The number of the round within the step, from 0."""
    @property
    def sends(self) -> list[tuple[int, Message]]:
        """Receivers with their messages."""
    @property
    def receives(self) -> list[tuple[int, int]]:
        """Senders with a bound on the bytes of their messages, in the order that ``resume`` takes them."""

@final
class Worker:
    """One worker's side of a repeated all-reduce of ``n`` elements: it says what to exchange and never does it.

    ``begin`` a step with a gradient, move the round it returns, ``resume`` with what was received, until there is no further
    round; then ``write`` the update and ``commit``, or ``abort``. :func:`spardl.drive` does all that.
    """

    def __new__(
        cls,
        method: str,
        n: int,
        rank: int = 0,
        size: int = 1,
        *,
        density: float = 0.01,
        value_type: str | None = None,
        options: Mapping[str, str] | None = None,
        layout: Sequence[tuple[str, Sequence[int]]] | None = None,
        bucket: int = 0,
        threads: int = 1,
    ) -> Worker:
        """``method`` is a name of :func:`spardl.methods`, also with a value type (``-bf16``, ``-q4``); ``options`` are those that ``explain`` lists.

        ``layout`` names the tensors and their shapes, for methods that look at layers. Messages carry ``bucket``: one of
        another bucket is refused. ``threads`` share the pass over the gradient; the bits are the same for any number.
        """
    def begin(
        self,
        gradient: DLPack | Sequence[DLPack],
        *,
        density: float | None = None,
        step: int | None = None,
        scale: float = 1.0,
        finite: bool = True,
    ) -> Round | None:
        """Starts a step with ``scale`` times the gradient, in one array or several; a new ``density`` stays.

        With ``finite`` false all workers skip the step. Density and step must be equal on all workers. Returns the first round,
        or None when there is nothing to exchange.
        """
    def resume(self, inbox: Sequence[Buffer]) -> Round | None:
        """Takes the messages of the round, in the order of its ``receives``; None when the step is over."""
    def write(self, out: DLPack | Sequence[DLPack], *, scale: float | None = None) -> None:
        """Writes the update times ``scale`` over ``out``; without it the mean over workers."""
    def commit(self) -> None:
        """Makes the finished step final: what was not delivered is the new residual."""
    def abort(self) -> None:
        """Drops the current step at any point; everything is as before its ``begin``."""
    def read_residual(self, out: DLPack, start: int = 0) -> None:
        """Copies the residual from element ``start`` on into ``out`` (float32)."""
    def write_residual(self, values: DLPack, start: int = 0, *, add: bool = False) -> None:
        """Replaces the residual from element ``start`` on, or adds to it."""
    def return_update(self, start: int, stop: int) -> None:
        """After ``commit``: adds what was delivered for these elements to this worker's residual.

        For elements whose update nobody used; exactly one worker does it.
        """
    def method_state(self) -> dict[str, tuple[Literal["f32", "u64"], list[Any]]]:
        """The small state that lives on besides the residual: thresholds, partitions, counters."""
    def set_method_state(self, state: Mapping[str, tuple[str, Sequence[Any]]]) -> None:
        """Takes back what ``method_state`` gave."""
    def to_bytes(self) -> bytes:
        """Everything that lives on (residual, state of the method, number of the next step) as the bytes of a safetensors file."""
    def load_bytes(self, saved: Buffer) -> None:
        """Takes back what ``to_bytes`` of the same method and length gave, and goes on bit for bit."""
    def stats(self) -> Stats:
        """What the last step cost."""
    @property
    def outcome(self) -> str | None:
        """``"updated"`` or ``"skipped: ..."`` after the last round, else None."""
    @property
    def residual_norm(self) -> float:
        """The Euclidean norm of the residual."""
    @property
    def keeps_residual(self) -> bool:
        """Does the method keep a residual?"""
    @property
    def step(self) -> int:
        """The number of the next step; ``commit`` counts."""
    @step.setter
    def step(self, step: int) -> None: ...
    @property
    def method(self) -> str:
        """The whole configuration in one line."""
    @property
    def value_error(self) -> float:
        """The largest relative error of a value on its way; it stays in the residual."""
    @property
    def n(self) -> int:
        """The number of elements."""
    @property
    def rank(self) -> int:
        """The number of this worker."""
    @property
    def size(self) -> int:
        """The number of workers."""

def methods() -> dict[str, str]:
    """The names of all methods with one line each; each also runs as ``NAME-bf16``, ``-q8``, ``-q4``, ``-q2``, ``-q1``."""

def explain(name: str) -> str:
    """The idea of a method, a worked example, its cost, its options, and what differs from the authors' code."""

def cost(
    method: str,
    n: int,
    size: int,
    *,
    density: float = 0.01,
    step: int = 0,
    value_type: str | None = None,
    options: Mapping[str, str] | None = None,
    layout: Sequence[tuple[str, Sequence[int]]] | None = None,
) -> Cost:
    """What a step costs the busiest of ``size`` workers at most, beside the bytes of a dense all-reduce."""

@final
class Tuning:
    """What :func:`tune` chose, and why; ``str(tuning)`` is a table."""

    @property
    def method(self) -> str:
        """A name of :func:`methods`, with its value type."""
    @property
    def options(self) -> dict[str, str]:
        """Options of the method."""
    @property
    def seconds(self) -> float:
        """What an exchange is expected to take."""
    @property
    def reason(self) -> str:
        """The choice in a sentence."""
    def seconds_at(self, density: float) -> float:
        """What an exchange is expected to take at another density, in seconds."""

def tune(
    lengths: Sequence[int],
    rank: int,
    size: int,
    isend: Callable[[int, Message], Request],
    irecv: Callable[[int, int], Received],
    *,
    density: float = 0.01,
    value_types: Sequence[str] | None = None,
    current: tuple[str, Mapping[str, str]] | None = None,
) -> Tuning:
    """Measures between workers and says which method is fastest for buckets of these lengths, dense ones included.

    ``isend`` and ``irecv`` are those of :func:`drive`. All workers must call it together, and all get the same answer. It takes
    seconds: steps of every method that may win are tried. ``value_types`` are those to choose from, f32 and bf16 by default.
    ``current`` is a method in use, with its options: it is chosen unless it should take a tenth longer than the fastest.
    """

def encode(
    gradient: DLPack,
    residual: DLPack | None = None,
    *,
    density: float = 0.01,
    chunk: int = 4096,
    value_type: str = "f32",
) -> Message:
    """The largest entries of every chunk of ``gradient + residual``, packed to bytes.

    ``residual`` (float32, or None for none) is replaced by what was not packed, rounding errors included.
    """

def decode(payload: Buffer, out: DLPack, *, scale: float = 1.0, add: bool = False) -> int:
    """Writes a payload's entries times ``scale`` over ``out``, or adds them to it (float32); returns how many there were."""
