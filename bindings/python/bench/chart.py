"""A chart of an experiment as SVG: every row against steps and against bytes sent, means over seeds.

    python bindings/python/bench/chart.py cifar10-longer results.jsonl chart.svg

It shows what was tested on the way (accuracy, held-out loss); where only the end was tested, the training loss.
"""

import json
import math
import pathlib
import statistics
import sys
from dataclasses import dataclass
from typing import Any

COLOURS = ["#222222", "#c0392b", "#2471a3", "#239b56", "#b9770e", "#7d3c98", "#117a65", "#839192"]
PANEL, HEIGHT, LEFT, BOTTOM, TOP, LEGEND = 400, 340, 60, 44, 28, 190
METRICS = ("accuracy", "held-out loss")


@dataclass(frozen=True)
class Point:
    """Where a row stands after an epoch."""

    step: float
    megabytes: float
    value: float


def curves(task: str, source: pathlib.Path) -> tuple[str, dict[str, list[Point]]]:
    """The metric, and its points by row, in the order in which rows were run."""
    runs = [run for run in map(json.loads, source.read_text(encoding="utf-8").splitlines()) if run["task"] == task]
    curved = (name for name in METRICS if all(sum(name in epoch for epoch in run["epochs"]) > 1 for run in runs))
    metric = next(curved, "loss")
    rows: dict[str, list[list[dict[str, Any]]]] = {}
    for run in runs:
        rows.setdefault(run["row"], []).append([epoch for epoch in run["epochs"] if metric in epoch])
    return metric, {name: [_mean(epochs, metric) for epochs in zip(*found)] for name, found in rows.items()}


def _mean(epochs: tuple[dict[str, Any], ...], metric: str) -> Point:
    means = {key: statistics.mean(epoch[key] for epoch in epochs) for key in ("step", "bytes_sent", metric)}
    return Point(means["step"], means["bytes_sent"] / 1e6, means[metric])


class Axis:
    """A scale of numbers on a stretch of the picture."""

    def __init__(self, numbers: list[float], start: float, end: float, logarithmic: bool = False) -> None:
        self._logarithmic = logarithmic
        self._low, self._high = min(map(self._scale, numbers)), max(map(self._scale, numbers))
        self._start, self._end = start, end

    def _scale(self, number: float) -> float:
        return math.log10(number) if self._logarithmic else number

    def at(self, number: float) -> float:
        """Where a number stands."""
        part = (self._scale(number) - self._low) / max(self._high - self._low, 1e-9)
        return self._start + (self._end - self._start) * part

    def marks(self) -> list[float]:
        """Five numbers from end to end."""
        spread = [self._low + (self._high - self._low) * part / 4 for part in range(5)]
        return [10**mark if self._logarithmic else mark for mark in spread]


def draw(task: str, metric: str, rows: dict[str, list[Point]]) -> str:
    """The whole picture."""
    width = 2 * PANEL + LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="12">']
    parts.append(f'<rect width="{width}" height="{HEIGHT}" fill="white"/>')
    parts += _panel(f"{task}: {metric} by steps", 0, {name: [(p.step, p.value) for p in points] for name, points in rows.items()})
    by_bytes = {name: [(p.megabytes, p.value) for p in points] for name, points in rows.items()}
    parts += _panel("by MB sent by a rank", PANEL, by_bytes, logarithmic=True)
    for number, name in enumerate(rows):
        height = TOP + 16 + 18 * number
        parts.append(f'<line x1="{2 * PANEL + 8}" x2="{2 * PANEL + 30}" y1="{height - 4}" y2="{height - 4}" stroke="{_colour(number)}" stroke-width="2"/>')
        parts.append(f'<text x="{2 * PANEL + 36}" y="{height}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, left: int, rows: dict[str, list[tuple[float, float]]], logarithmic: bool = False) -> list[str]:
    places = [place for row in rows.values() for place in row]
    x = Axis([place[0] for place in places], left + LEFT, left + PANEL - 20, logarithmic)
    y = Axis([place[1] for place in places], HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{left + LEFT}" y="{TOP - 10}">{title}</text>']
    for mark in y.marks():
        parts.append(f'<line x1="{left + LEFT}" x2="{left + PANEL - 20}" y1="{y.at(mark):.1f}" y2="{y.at(mark):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left + LEFT - 6}" y="{y.at(mark) + 4:.1f}" text-anchor="end">{mark:.2f}</text>')
    for mark in x.marks():
        parts.append(f'<text x="{x.at(mark):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{mark:.4g}</text>')
    for number, row in enumerate(rows.values()):
        line = " ".join(f"{x.at(across):.1f},{y.at(up):.1f}" for across, up in row)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{_colour(number)}" stroke-width="2"/>')
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


if __name__ == "__main__":
    name, results, picture = sys.argv[1:]
    pathlib.Path(picture).write_text(draw(name, *curves(name, pathlib.Path(results))), encoding="utf-8")
