"""A character-level transformer on a text file with AdamW, dense or sparse.

    torchrun --nproc-per-node 4 examples/python/transformer.py shakespeare.txt --density 0.01
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import spardl.torch

parser = argparse.ArgumentParser()
parser.add_argument("text")
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--density", type=float, default=0.01, help="0 for plain DDP")
parser.add_argument("--method", default="spardl")
parser.add_argument("--hand-over", action="store_true", help="no momentum while mass is held back, Adam's second moment frozen")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--context", type=int, default=64)
arguments = parser.parse_args()


class Transformer(nn.Module):
    """Embeddings, encoder layers with a causal mask, a head."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        width = arguments.width
        self.tokens = nn.Embedding(symbols, width)
        self.places = nn.Embedding(arguments.context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, arguments.layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, symbols)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(arguments.context))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


dist.init_process_group("gloo")
rank = dist.get_rank()
with open(arguments.text, encoding="utf-8") as file:
    text = file.read()
symbols = sorted(set(text))
data = torch.tensor([symbols.index(symbol) for symbol in text])
held_out = data[-max(len(data) // 10, 2 * arguments.context) :]

torch.manual_seed(0)
model = DDP(Transformer(len(symbols)))
state = None
if arguments.density > 0:
    state = spardl.torch.register(model, method=arguments.method, density=arguments.density)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
if state and arguments.hand_over:
    spardl.torch.hand_over(optimiser, state)
batches = torch.Generator().manual_seed(1 + rank)


def sample(source: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(0, len(source) - arguments.context - 1, (rows,), generator=batches)
    windows = torch.stack([source[start : start + arguments.context + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def score(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


began = time.perf_counter()
for step in range(arguments.steps):
    optimiser.zero_grad()
    score(*sample(data[: -len(held_out)], 8)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
seconds = time.perf_counter() - began
model.eval()
with torch.no_grad():
    batches.manual_seed(0)
    loss = score(*sample(held_out, 32))
if rank == 0:
    sent = state.report()["bytes_sent_total"] if state else float("nan")
    print(f"held-out loss {loss.item():.3f} after {arguments.steps} steps, {seconds:.1f} s, {sent / 1e6:.2f} MB sent by rank 0")
if state:
    state.close()
dist.destroy_process_group()
