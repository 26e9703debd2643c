# SPDX-License-Identifier: Apache-2.0
"""The tasks of bench/convergence_card.py: the examples' models and data, and ResNet-20 on CIFAR-10.

torch.func cannot stack nn.Embedding (well) and nn.LSTM, so these are replaced by modules with the same parameters that
compute the same with plain products; `original` gives the example's own model for comparison.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from stacked import ROOT, Batch, StackedTask

sys.path.insert(0, str(ROOT / "examples"))
import ddp_chargpt  # noqa: E402
import ddp_lstm  # noqa: E402
import ddp_mnist  # noqa: E402
from ddp_text import Text  # noqa: E402


class Embedding(nn.Module):
    """nn.Embedding as a product with ones and zeros."""

    def __init__(self, like: nn.Embedding) -> None:
        super().__init__()
        self.weight = like.weight
        self.register_buffer("letters", torch.arange(like.num_embeddings), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return (text.unsqueeze(-1) == self.letters).to(self.weight.dtype) @ self.weight


class Lstm(nn.Module):
    """nn.LSTM of one layer, batch first."""

    def __init__(self, like: nn.LSTM) -> None:
        super().__init__()
        if like.num_layers != 1:
            raise ValueError("only one layer is written out")
        for name, parameter in list(like.named_parameters()):
            self.register_parameter(name, parameter)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        width = self.weight_hh_l0.shape[1]
        outside = inputs @ self.weight_ih_l0.T + (self.bias_ih_l0 + self.bias_hh_l0)
        across = self.weight_hh_l0.T
        state = memory = torch.zeros_like(outside[:, 0, :width])
        states = []
        for place in outside.unbind(1):
            gates = place + state @ across
            take, keep, _, show = torch.sigmoid(gates).chunk(4, -1)
            memory = keep * memory + take * torch.tanh(gates[:, 2 * width : 3 * width])
            state = show * torch.tanh(memory)
            states.append(state)
        return torch.stack(states, 1), None


def stackable(model: nn.Module) -> nn.Module:
    """The same model with the two modules replaced."""
    for name, module in list(model.named_children()):
        if isinstance(module, nn.Embedding):
            setattr(model, name, Embedding(module))
        elif isinstance(module, nn.LSTM):
            setattr(model, name, Lstm(module))
    return model


def _score(model: nn.Module, test: Batch, size: int) -> tuple[float, float]:
    sums = torch.zeros(3, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for inputs, targets in zip(*(part.split(size) for part in test)):
            outputs, goals = model(inputs).flatten(0, -2), targets.flatten()
            loss = nn.functional.cross_entropy(outputs, goals, reduction="sum")
            sums += torch.tensor([loss.item(), (outputs.argmax(-1) == goals).sum().item(), goals.numel()])
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def _text(data: Path, context: int, device: torch.device) -> tuple[int, int, Callable[[torch.Tensor], Batch], Batch]:
    text = Text(argparse.Namespace(data=data / "tinyshakespeare.txt"), context)
    train, steps = text._train.to(device), torch.arange(context + 1, device=device)

    def batch_of(starts: torch.Tensor) -> Batch:
        rows = train[starts.unsqueeze(-1) + steps]
        return rows[..., :-1], rows[..., 1:]

    inputs, targets = text.test()
    return text.letters, len(train) - context - 1, batch_of, (inputs.to(device), targets.to(device))


def chargpt(data: Path, device: torch.device, world: int) -> StackedTask:
    context = 64
    letters, samples, batch_of, test = _text(data, context, device)
    warmup = [(0.0, 0.25), (0.005, 0.0625), (0.04, 0.0156), (0.06, 0.004), (0.08, 0.001)]
    return StackedTask(
        lambda: stackable(ddp_chargpt.CharGpt(letters, context)), samples, batch_of, lambda model: _score(model, test, 500),
        steps=20000, batch=32 // world, rate=0.1, rate_warmup=100, warmup=warmup,
    )  # fmt: skip


def lstm(data: Path, device: torch.device, world: int) -> StackedTask:
    letters, samples, batch_of, test = _text(data, 50, device)
    warmup = [(0.0, 0.25), (0.005, 0.0625), (0.02, 0.0156), (0.04, 0.004), (0.06, 0.001)]
    return StackedTask(
        lambda: stackable(ddp_lstm.CharLstm(letters, 1)), samples, batch_of, lambda model: _score(model, test, 500),
        steps=20000, batch=32 // world, rate=0.5, clip=5.0, warmup=warmup,
    )  # fmt: skip


def mnist(data: Path, device: torch.device, world: int) -> StackedTask:
    images, labels, test_images, test_labels = (part.to(device) for part in ddp_mnist.load(data / "mnist"))
    test = (test_images, test_labels)
    warmup = [(0.0, 0.25), (0.016, 0.0625), (0.033, 0.0156), (0.05, 0.004), (0.07, 0.001)]
    return StackedTask(
        ddp_mnist.make_model, len(images), lambda rows: (images[rows], labels[rows]), lambda model: _score(model, test, 1000),
        steps=3000, batch=128 // world, rate=0.02, warmup=warmup,
    )  # fmt: skip


# ---- ResNet-20 on CIFAR-10 -------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions and the way past them, which is cut and padded where the width changes (the paper's option A)."""

    def __init__(self, before: int, width: int, stride: int, running: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width, track_running_stats=running)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width, track_running_stats=running)
        self.stride, self.more = stride, width - before

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.norm2(self.second(torch.relu(self.norm1(self.first(inputs)))))
        past = nn.functional.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return torch.relu(outputs + past)


def resnet20(running: bool = False) -> nn.Module:
    """272,474 parameters. `running`: keeps means and variances of batches, for testing."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16, track_running_stats=running), nn.ReLU())
    before = 16
    for width in (16, 32, 64):
        for number in range(3):
            model.append(Block(before, width, 2 if width != 16 and number == 0 else 1, running))
            before = width
    model.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)])
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return model


MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def _decode(image: bytes) -> bytes:
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError:
        from PIL import Image

        return Image.open(io.BytesIO(image)).convert("RGB").tobytes()
    decoded = decode_jpeg(torch.frombuffer(bytearray(image), dtype=torch.uint8), ImageReadMode.RGB)
    return decoded.permute(1, 2, 0).contiguous().numpy().tobytes()  # type: ignore[no-any-return]


def read_cifar(path: Path) -> dict[str, Batch]:
    """Images (bytes; rows, columns, colours) and labels for `train` and `test`, from PART/CLASS/NUMBER.jpg in an archive;
    kept beside it."""
    kept = path.with_name("cifar10.pt")
    if kept.exists():
        return torch.load(kept)  # type: ignore[no-any-return]
    images: dict[str, list[tuple[str, bytes]]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.name.endswith(".jpg"):
                images[entry.name.split("/")[0]].append((entry.name, archive.extractfile(entry).read()))  # type: ignore[union-attr]
    found: dict[str, Batch] = {}
    with multiprocessing.get_context("fork").Pool() as processes:
        for part, own in images.items():
            own.sort()
            raw = bytearray(b"".join(processes.map(_decode, [image for _, image in own], chunksize=500)))
            classes = sorted({name.split("/")[1] for name, _ in own})
            labels = torch.tensor([classes.index(name.split("/")[1]) for name, _ in own])
            found[part] = torch.frombuffer(raw, dtype=torch.uint8).view(-1, 32, 32, 3), labels
    torch.save(found, kept)
    return found


def cifar(data: Path, device: torch.device, world: int) -> StackedTask:
    """A draw is an image, one of 81 places to cut it out after padding, and whether it is mirrored."""
    if (data / "cifar10.tar.xz").exists():
        parts = read_cifar(data / "cifar10.tar.xz")
    else:  # only for trying the program
        parts = {part: (torch.randint(256, (500, 32, 32, 3), dtype=torch.uint8), torch.randint(10, (500,))) for part in ("train", "test")}
    mean, deviation = 255 * torch.tensor(MEAN, device=device), 255 * torch.tensor(DEVIATION, device=device)

    def normal(pixels: torch.Tensor) -> torch.Tensor:
        return ((pixels - mean) / deviation).movedim(-1, -3)

    images, labels = (part.to(device) for part in parts["train"])
    test = (normal(parts["test"][0].to(device)), parts["test"][1].to(device))
    wide = nn.functional.pad(images.permute(0, 3, 1, 2).float() - mean[:, None, None], (4, 4, 4, 4))  # padded with the mean
    padded = (wide / deviation[:, None, None]).permute(0, 2, 3, 1).contiguous()
    line = torch.arange(32, device=device)

    def batch_of(draws: torch.Tensor) -> Batch:
        rows, rest = draws // 162, draws % 162
        down, across, mirror = rest // 18, rest // 2 % 9, rest % 2
        y = down[..., None] + line
        x = across[..., None] + torch.where(mirror[..., None] > 0, 31 - line, line)
        cut = padded[rows[..., None, None], y[..., :, None], x[..., None, :]]
        return cut.movedim(-1, -3), labels[rows]

    def score(model: nn.Module) -> tuple[float, float]:
        final = resnet20(running=True).to(device)
        final.load_state_dict(model.state_dict(), strict=False)
        for module in final.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = None  # the mean of all batches
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))[:10_000].to(device)
        with torch.no_grad():
            for part in some.split(500):
                final(normal(images[part]))
        return _score(final, test, 500)

    warmup = [(0.0, 0.25), (0.02, 0.0625), (0.04, 0.0156), (0.06, 0.004), (0.08, 0.001)]
    return StackedTask(
        resnet20, len(images) * 162, batch_of, score, steps=4000, batch=128 // world, rate=0.1, rate_warmup=100, decay=1e-4,
        warmup=warmup, fused=True, branches=True,
    )  # fmt: skip


TASKS: dict[str, Callable[[Path, torch.device, int], StackedTask]] = {"chargpt": chargpt, "lstm": lstm, "mnist": mnist, "cifar": cifar}
