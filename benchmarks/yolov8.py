"""YOLOv8n with its decoding head: boxes and scores for every place, as Ultralytics' export gives them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.networks import SPPF, Bottleneck, Conv

#: Bins of the distribution over the distance from a place to each side of its box.
BINS = 16


class Wide(Bottleneck):
    """The bottleneck of YOLOv8: both convolutions are 3x3."""

    def __init__(self, channels: int, shortcut: bool = True) -> None:
        super().__init__(channels, shortcut)
        self.first = Conv(channels, channels, 3)


class C2f(nn.Module):
    """Bottlenecks one after another; what each gives is kept, side by side."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = True) -> None:
        super().__init__()
        self.half = outputs // 2
        self.split, self.out = Conv(inputs, outputs), Conv((2 + count) * self.half, outputs)
        self.blocks = nn.ModuleList([Wide(self.half, shortcut) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.split(x).split((self.half, self.half), 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.out(torch.cat(parts, 1))


class Detect(nn.Module):
    """For each scale boxes as distributions, and scores; then the boxes in pixels: [N, 4 + classes, places]."""

    def __init__(self, classes: int, channels: tuple[int, ...], strides: tuple[int, ...]) -> None:
        super().__init__()
        self.classes, self.strides = classes, strides
        hidden = max(16, channels[0] // 4, 4 * BINS), max(channels[0], min(classes, 100))

        def head(inputs: int, width: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(Conv(inputs, width, 3), Conv(width, width, 3), nn.Conv2d(width, outputs, 1))

        self.boxes = nn.ModuleList([head(c, hidden[0], 4 * BINS) for c in channels])
        self.scores = nn.ModuleList([head(c, hidden[1], classes) for c in channels])
        self.register_buffer("bins", torch.arange(BINS, dtype=torch.float32).view(1, BINS, 1, 1))

    def forward(self, maps: list[Tensor]) -> Tensor:
        both = [torch.cat((box(x), score(x)), 1) for box, score, x in zip(self.boxes, self.scores, maps, strict=True)]
        flat = torch.cat([x.flatten(2) for x in both], 2)
        boxes, scores = flat.split((4 * BINS, self.classes), 1)
        batch, _, count = boxes.shape
        share = boxes.view(batch, 4, BINS, count).transpose(1, 2).softmax(1)
        near, far = (share * self.bins).sum(1).chunk(2, 1)
        places, strides = self.places(maps)
        low, high = places - near, places + far
        return torch.cat((torch.cat(((low + high) / 2, high - low), 1) * strides, scores.sigmoid()), 1)

    def places(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The middle of each place, [1, 2, places], in its scale's own unit, and that unit in pixels."""
        places, strides = [], []
        for x, stride in zip(maps, self.strides, strict=True):
            height, width = x.shape[2:]
            down, right = (torch.arange(n, device=x.device, dtype=x.dtype) + 0.5 for n in (height, width))
            grid = torch.meshgrid(down, right, indexing="ij")
            places.append(torch.stack((grid[1], grid[0])).view(1, 2, -1))
            strides.append(torch.full_like(places[-1][:, :1], stride))
        return torch.cat(places, 2), torch.cat(strides, 2)


class YOLOv8n(nn.Module):
    """The nano model of Ultralytics' YOLOv8: [N, 3, H, W], H and W in 32s -> [N, 4 + classes, places]."""

    def __init__(self, classes: int = 80, width: int = 16) -> None:
        super().__init__()
        w = width
        self.to_p3 = nn.Sequential(
            Conv(3, w, 3, 2), Conv(w, 2 * w, 3, 2), C2f(2 * w, 2 * w, 1), Conv(2 * w, 4 * w, 3, 2), C2f(4 * w, 4 * w, 2)
        )
        self.to_p4 = nn.Sequential(Conv(4 * w, 8 * w, 3, 2), C2f(8 * w, 8 * w, 2))
        self.to_p5 = nn.Sequential(Conv(8 * w, 16 * w, 3, 2), C2f(16 * w, 16 * w, 1), SPPF(16 * w))
        self.up = nn.Upsample(scale_factor=2)
        self.merge4, self.merge3 = C2f(24 * w, 8 * w, 1, False), C2f(12 * w, 4 * w, 1, False)
        self.down4, self.out4 = Conv(4 * w, 4 * w, 3, 2), C2f(12 * w, 8 * w, 1, False)
        self.down5, self.out5 = Conv(8 * w, 8 * w, 3, 2), C2f(24 * w, 16 * w, 1, False)
        self.detect = Detect(classes, (4 * w, 8 * w, 16 * w), (8, 16, 32))

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.to_p3(x)
        p4 = self.to_p4(p3)
        p5 = self.to_p5(p4)
        top4 = self.merge4(torch.cat((self.up(p5), p4), 1))
        out3 = self.merge3(torch.cat((self.up(top4), p3), 1))
        out4 = self.out4(torch.cat((self.down4(out3), top4), 1))
        out5 = self.out5(torch.cat((self.down5(out4), p5), 1))
        return self.detect([out3, out4, out5])
