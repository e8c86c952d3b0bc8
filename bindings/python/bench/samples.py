"""The data of the experiments, from the official files."""

import gzip
import lzma
import pathlib
import tarfile

import torch

Data = dict[str, torch.Tensor]


def cifar10(directory: pathlib.Path, files: int = 1) -> Data:
    """The first files of 10,000 training images, the test set whole; from the official archive."""
    wanted = [f"data_batch_{number + 1}.bin" for number in range(files)]

    def rows(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3073)
        images = table[:, 1:].reshape(-1, 3, 32, 32).float() / 255
        middle, spread = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])
        return (images - middle[:, None, None]) / spread[:, None, None], table[:, 0].long()

    with lzma.open(directory / "cifar10" / "cifar-10-binary.tar.xz") as packed, tarfile.open(fileobj=packed) as archive:
        found = {pathlib.Path(one.name).name: archive.extractfile(one) for one in archive if one.name.endswith(".bin")}
        contents = {name: found[name].read() for name in [*wanted, "test_batch.bin"]}
    images, labels = rows(b"".join(contents[name] for name in wanted))
    test_images, test_labels = rows(contents["test_batch.bin"])
    return {"images": images, "labels": labels, "test_images": test_images, "test_labels": test_labels}


def cifar10_larger(directory: pathlib.Path) -> Data:
    """Twice as many."""
    return cifar10(directory, files=2)


def mnist(directory: pathlib.Path) -> Data:
    """The official files."""

    def values(name: str, header: int) -> torch.Tensor:
        with gzip.open(directory / "mnist" / name) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    data = {}
    for prefix, kind in (("", "train"), ("test_", "t10k")):
        data[f"{prefix}images"] = values(f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).float() / 255
        data[f"{prefix}labels"] = values(f"{kind}-labels-idx1-ubyte.gz", 8).long()
    return data


def shakespeare(directory: pathlib.Path) -> Data:
    """A million characters; the last tenth is held out."""
    text = (directory / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    symbols = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
    data = torch.tensor([symbols[symbol] for symbol in text])
    return {"text": data[: -len(data) // 10], "held_out": data[-len(data) // 10 :]}
