"""Every recipe of examples/python runs, as its header says, with few steps."""

import os
import pathlib
import random
import shutil
import subprocess
import sys

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
    printed = start(2, "transformer.py", str(text), "--steps", "15", "--width", "32", "--context", "16")
    assert "held-out loss" in printed
    dense = start(2, "transformer.py", str(text), "--steps", "3", "--density", "0", "--width", "32", "--context", "16")
    assert "held-out loss" in dense


def test_resnet20_on_the_files_of_cifar10(tmp_path: pathlib.Path) -> None:
    generator = random.Random(0)
    for name, rows in (("data_batch_1.bin", 64), ("test_batch.bin", 20)):
        (tmp_path / name).write_bytes(b"".join(bytes([row % 10]) + generator.randbytes(3072) for row in range(rows)))
    assert "accuracy" in start(2, "resnet20.py", str(tmp_path), "--epochs", "1", "--batch-size", "8")


def test_accelerate() -> None:
    assert "bytes sent in the last step" in start(2, "accelerate_loop.py", "--steps", "15")


def test_lightning() -> None:
    assert "15 steps" in start(2, "lightning_loop.py", "--steps", "15")


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
