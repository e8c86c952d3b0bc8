"""The experiments of bench/: a run that was interrupted ends as one that was not."""

import dataclasses
import pathlib
import sys
from typing import Any

import pytest
from ranks import run

BENCH = pathlib.Path(__file__).parents[1] / "bench"
EPOCHS = 4


def small_task() -> Any:
    """MNIST's task with a few random images."""
    import torch
    from tasks import TASKS, Row, at

    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 10, (96,), generator=generator)
    images = torch.randn(96, 1, 28, 28, generator=generator)
    data = {"images": images, "labels": labels, "test_images": images, "test_labels": labels}
    rows = (Row("dense"), Row("handed over", at(0.05), hand_over=True), Row("low rank", power_rank=2))
    task = dataclasses.replace(TASKS["mnist"], rows=rows, epochs=EPOCHS, batch=8, dense_epochs=1, lr_epochs=(3,))
    return task, data


class Interrupted(Exception):
    """Stands for what ends all processes."""


def trained(rank: int, size: int, directory: str, row: str, ends: bool) -> Any:
    """The curve and the parameters; None for a run that ends while rank 1 alone has written its third epoch."""
    sys.path.insert(0, str(BENCH))
    from experiments import Run
    from progress import Progress

    class Ends(Progress):
        def save(self, epoch: int, state: dict[str, Any]) -> None:
            if epoch < 3:
                super().save(epoch, state)
                return
            if rank == 1:
                self._write(epoch, state)
            raise Interrupted

    task, data = small_task()
    one = Run(task, next(found for found in task.rows if found.name == row), 1, data)
    progress = (Ends if ends else Progress)(pathlib.Path(directory), one.name)
    try:
        result = one.train(progress)
    except Interrupted:
        return None
    progress.clear()
    return result["epochs"], [parameter.detach().flatten().tolist() for parameter in one.model.parameters()]


@pytest.mark.parametrize("row", ["dense", "handed over", "low rank"])
def test_an_interrupted_run_goes_on_after_its_last_whole_epoch(tmp_path: pathlib.Path, row: str) -> None:
    whole = run(2, trained, str(tmp_path / "whole"), row, False)[0]
    interrupted = tmp_path / "interrupted"
    assert run(2, trained, str(interrupted), row, True) == [None, None]
    assert len(list(interrupted.glob("*.epoch*.pt"))) == 3, "rank 0 has the second epoch, rank 1 the second and the third"
    rest = run(2, trained, str(interrupted), row, False)[0]
    assert rest == whole and len(rest[0]) == EPOCHS
    assert not list(interrupted.iterdir()), "what is not needed any more is gone"
