"""A chart of an experiment as SVG: the training loss of every row by epoch, means over seeds.

    python bindings/python/bench/chart.py cifar10 results.jsonl chart.svg
"""

import json
import pathlib
import statistics
import sys

COLOURS = ["#222222", "#c0392b", "#2471a3", "#239b56", "#b9770e", "#7d3c98"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 60, 40, 20, 190


def curves(task: str, source: pathlib.Path) -> dict[str, list[float]]:
    """The rows in the order in which they were run."""
    rows: dict[str, list[list[float]]] = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run["task"] == task:
            rows.setdefault(run["row"], []).append([epoch["loss"] for epoch in run["epochs"]])
    return {name: [statistics.mean(epoch) for epoch in zip(*runs)] for name, runs in rows.items()}


def draw(task: str, rows: dict[str, list[float]]) -> str:
    """The whole picture."""
    low = min(min(losses) for losses in rows.values())
    high = max(max(losses) for losses in rows.values())
    epochs = max(len(losses) for losses in rows.values())

    def x(epoch: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * epoch / max(epochs - 1, 1)

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / max(high - low, 1e-9)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for part in range(5):
        loss = low + (high - low) * part / 4
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>')
    for epoch in range(epochs):
        parts.append(f'<text x="{x(epoch):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{epoch + 1}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}">{task}: training loss by epoch</text>')
    for number, (name, losses) in enumerate(rows.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(epoch):.1f},{y(loss):.1f}" for epoch, loss in enumerate(losses))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        height = TOP + 16 + 18 * number
        parts.append(f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 36}" y1="{height - 4}" y2="{height - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 42}" y="{height}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    name, results, picture = sys.argv[1:]
    pathlib.Path(picture).write_text(draw(name, curves(name, pathlib.Path(results))), encoding="utf-8")
