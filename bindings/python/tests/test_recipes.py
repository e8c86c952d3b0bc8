"""Every recipe of examples/python runs, as its header says, with few steps."""

import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from typing import Any

import pytest
from ranks import recipe, run

RECIPES = pathlib.Path(__file__).parents[3] / "examples" / "python"


def start(size: int, script: str, *arguments: str) -> str:
    """What rank 0 printed."""
    return run(size, recipe, str(RECIPES / script), list(arguments), limit=150)[0]


def test_plain_ddp(tmp_path: pathlib.Path) -> None:
    printed = start(2, "ddp.py", "--steps", "60", "--checkpoint", str(tmp_path))
    assert "bytes sent in the last step" in printed
    assert len(list(tmp_path.glob("spardl-rank*-of-00002.safetensors"))) == 2


def test_outer_steps() -> None:
    assert start(2, "outer_steps.py", "--steps", "20", "--every", "5").count("bytes sent") == 4


def test_fsdp2() -> None:
    assert "loss" in start(4, "fsdp2.py", "--steps", "10")


def test_a_transformer_on_a_text_file(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text.txt"
    generator = random.Random(0)
    text.write_text("".join(generator.choice("abcd efg\n") for _ in range(3000)))
    printed = start(2, "transformer.py", str(text), "--steps", "15", "--width", "32", "--context", "16", "--hand-over")
    assert "held-out loss" in printed
    dense = start(2, "transformer.py", str(text), "--steps", "3", "--density", "0", "--width", "32", "--context", "16")
    assert "held-out loss" in dense


def test_resnet20_on_the_files_of_cifar10(tmp_path: pathlib.Path) -> None:
    generator = random.Random(0)
    for name, rows in (("data_batch_1.bin", 64), ("test_batch.bin", 20)):
        (tmp_path / name).write_bytes(b"".join(bytes([row % 10]) + generator.randbytes(3072) for row in range(rows)))
    assert "accuracy" in start(2, "resnet20.py", str(tmp_path), "--epochs", "1", "--batch-size", "8", "--hand-over")


def test_accelerate() -> None:
    assert "bytes sent in the last step" in start(2, "accelerate_loop.py", "--steps", "15")


def test_lightning() -> None:
    assert "15 steps" in start(2, "lightning_loop.py", "--steps", "15")


BENCH = str(pathlib.Path(__file__).parents[1] / "bench")


def experiment(rank: int, size: int, directory: str) -> list[dict[str, Any]]:
    sys.path.insert(0, BENCH)
    import experiments
    import progress
    import tasks

    def trained(row: Any) -> dict[str, Any]:
        return experiments.Run(task, row, 1, data).train(progress.Progress(pathlib.Path(directory, "unfinished"), row.name))

    task = tasks.TASKS["mnist"]
    data = task.load(pathlib.Path(directory))
    rows = [row for row in task.rows if row.name in ("dense", "hand-over (rule B)")]
    return [{"task": task.name, "row": row.name, "seed": 1, **trained(row)} for row in rows]


def test_experiments_run_are_tabled_and_drawn(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, generator = tmp_path / "mnist", random.Random(0)
    folder.mkdir()
    for kind, rows in (("train", 320), ("t10k", 40)):
        with gzip.open(folder / f"{kind}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + generator.randbytes(784 * rows))
        with gzip.open(folder / f"{kind}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(bytes(8) + bytes(row % 10 for row in range(rows)))
    out = tmp_path / "results.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in run(2, experiment, str(tmp_path))[0]))
    monkeypatch.syspath_prepend(BENCH)
    import chart
    import experiments

    task = experiments.TASKS["mnist"]
    table = experiments.summary(task, experiments.read(out, task))
    assert table.count("\n") == 3 and "| hand-over (rule B) |" in table
    metric, rows = chart.curves("mnist", out)
    assert chart.draw("mnist", metric, rows).count("<polyline") == 4 and rows["dense"][-1].megabytes > rows["hand-over (rule B)"][-1].megabytes


def test_numpy_over_mpi() -> None:
    mpiexec = shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("mpiexec is not installed")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    command = [mpiexec, "-n", "3", sys.executable, str(RECIPES / "mpi_numpy.py")]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agreed: True") == 5
