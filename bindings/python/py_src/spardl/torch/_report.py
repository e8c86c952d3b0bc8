"""What steps cost, and whether they are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ._engine import Job


class Report:
    """Numbers of the last step and medians of dense and sparse ones."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._dense: list[float] = []
        self._sparse: list[float] = []
        self._totals = {"bytes_sent_total": 0.0, "dense_bytes_total": 0.0, "skipped_steps": 0.0}
        self._warned = False

    def note(self, jobs: Sequence[Job], elements: int, dense: bool, size: int, hook_seconds: float) -> str | None:
        """Takes in a finished step; returns a warning when dense steps were faster, once."""
        stats = [job.worker.stats() for job in jobs]
        seconds = max(job.ended for job in jobs) - min(job.began for job in jobs)
        whole = 8.0 * elements * (size - 1) / size
        self._last = {
            "bytes_sent": float(sum(one["bytes_sent"] for one in stats)),
            "dense_bytes": whole,
            "rounds": float(sum(one["rounds"] for one in stats)),
            "density": sum(one["nnz"] for one in stats) / max(elements, 1),
            "rescans": float(sum(one["rescans"] for one in stats)),
            "buckets": float(len(jobs)),
            "seconds": seconds,
            "seconds_local": sum(job.times.local for job in jobs),
            "seconds_waited": sum(job.times.waited for job in jobs),
            "seconds_overhead": hook_seconds + sum(job.times.overhead for job in jobs),
        }
        self._totals["bytes_sent_total"] += self._last["bytes_sent"]
        self._totals["dense_bytes_total"] += whole
        self._totals["skipped_steps"] += float(any(job.skipped for job in jobs))
        (self._dense if dense else self._sparse).append(seconds)
        return self._warning()

    def _warning(self) -> str | None:
        if self._warned or len(self._dense) < 5 or len(self._sparse) != 20:
            return None
        dense, sparse = median(self._dense), median(self._sparse)
        if sparse <= dense:
            return None
        self._warned = True
        return (
            f"spardl: dense would be faster here: {dense * 1e3:.1f} ms a step against {sparse * 1e3:.1f} ms "
            "(medians of this run's dense and sparse steps)"
        )

    def numbers(self) -> dict[str, float]:
        """Everything known, by name."""
        numbers = {**self._last, **self._totals}
        for name, steps in (("dense", self._dense), ("sparse", self._sparse)):
            if steps:
                numbers[f"seconds_{name}_median"] = median(steps)
        if self._dense and self._sparse:
            numbers["speedup_over_dense"] = median(self._dense) / max(median(self._sparse), 1e-9)
        return numbers
