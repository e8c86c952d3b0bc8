"""Lightning: register the hook when training starts and the strategy has wrapped the model.

On GPUs ``DDPStrategy(ddp_comm_state=spardl.torch.State(...), ddp_comm_hook=spardl.torch.hook)`` does the same, with
``state.bind(self)`` in ``on_fit_start``; on CPUs Lightning ignores those two.

    python examples/python/lightning_loop.py
"""

import argparse

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--processes", type=int, default=2)
arguments = parser.parse_args()


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))

    def on_train_start(self) -> None:
        self.state = spardl.torch.register(self.trainer.strategy.model, density=0.01)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    lightning.seed_everything(0)
    inputs = torch.randn(4096, 100)
    data = DataLoader(TensorDataset(inputs, inputs[:, :10].argmax(1)), batch_size=16)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.processes,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_steps=arguments.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, data)
    model.state.settle()
    if trainer.is_global_zero:
        print(f"{model.state.step} steps, {model.state.report()['bytes_sent']:.0f} bytes sent in the last one")
    model.state.close()
