"""The networks of the experiments."""

import torch
from torch import nn

CONTEXT = 64
SYMBOLS = 65


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride = 1 if before == after else 2
        self.first = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norms[0](self.first(inputs)).relu()
        hidden = self.norms[1](self.second(hidden))
        short = inputs[:, :, :: self.stride, :: self.stride]
        short = nn.functional.pad(short, (0, 0, 0, 0, 0, hidden.shape[1] - short.shape[1]))
        return (hidden + short).relu()


def resnet20() -> nn.Module:
    stages = [Block(*sides) for sides in [(16, 16)] * 3 + [(16, 32)] + [(32, 32)] * 2 + [(32, 64)] + [(64, 64)] * 2]
    first = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(*first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return model


def small_cnn() -> nn.Module:
    """About 100,000 parameters."""
    first = [nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(512, 160), nn.ReLU(), nn.Linear(160, 10))


class Transformer(nn.Module):
    """Embeddings, two encoder layers with a causal mask, a head."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(SYMBOLS, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, SYMBOLS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(text) + self.places.weight
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))
