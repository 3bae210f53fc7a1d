"""The networks that tests and benchmarks run, with random weights; torch >= 2.5.

ResNet-50 and MobileNetV3 are torchvision's; YOLOv5s (to its three raw maps) and the U-Net stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Conv(nn.Module):
    """Convolution, BatchNorm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, padding: int | None = None) -> None:
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    """Two convolutions, with or without a shortcut."""

    def __init__(self, channels: int, shortcut: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.shortcut = Conv(channels, channels), Conv(channels, channels, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Bottlenecks on one half of the channels, nothing on the other."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.left, self.right, self.out = Conv(inputs, half), Conv(inputs, half), Conv(2 * half, outputs)
        self.blocks = nn.Sequential(*[Bottleneck(half, shortcut) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat((self.blocks(self.left(x)), self.right(x)), 1))


class SPPF(nn.Module):
    """The same max-pooling three times, all results side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.out = Conv(channels, channels // 2), Conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        once = self.pool(x)
        twice = self.pool(once)
        return self.out(torch.cat((x, once, twice, self.pool(twice)), 1))


class YOLOv5s(nn.Module):
    """The small model of Ultralytics' YOLOv5 6.x, without the decoding of boxes: [N, 3, H, W], H and W in 32s."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.to_p3 = nn.Sequential(
            Conv(3, 32, 6, 2, 2), Conv(32, 64, 3, 2), C3(64, 64, 1), Conv(64, 128, 3, 2), C3(128, 128, 2)
        )
        self.to_p4 = nn.Sequential(Conv(128, 256, 3, 2), C3(256, 256, 3))
        self.to_p5 = nn.Sequential(Conv(256, 512, 3, 2), C3(512, 512, 1), SPPF(512), Conv(512, 256))
        self.up = nn.Upsample(scale_factor=2)
        self.merge4 = nn.Sequential(C3(512, 256, 1, False), Conv(256, 128))
        self.merge3 = C3(256, 128, 1, False)
        self.down4, self.out4 = Conv(128, 128, 3, 2), C3(256, 256, 1, False)
        self.down5, self.out5 = Conv(256, 256, 3, 2), C3(512, 512, 1, False)
        self.detect = nn.ModuleList([nn.Conv2d(c, 3 * (classes + 5), 1) for c in (128, 256, 512)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        p3 = self.to_p3(x)
        p4 = self.to_p4(p3)
        top5 = self.to_p5(p4)
        top4 = self.merge4(torch.cat((self.up(top5), p4), 1))
        out3 = self.merge3(torch.cat((self.up(top4), p3), 1))
        out4 = self.out4(torch.cat((self.down4(out3), top4), 1))
        out5 = self.out5(torch.cat((self.down5(out4), top5), 1))
        return tuple(head(out) for head, out in zip(self.detect, (out3, out4, out5), strict=True))


class UNet(nn.Module):
    """Ronneberger's U-Net with padded convolutions and BatchNorm: [N, 1, (D,) H, W], sizes in 16s."""

    def __init__(self, width: int = 64, dims: int = 2) -> None:
        super().__init__()
        conv, turned = ((nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d))[dims - 2]
        norm, pool = ((nn.BatchNorm2d, nn.MaxPool2d), (nn.BatchNorm3d, nn.MaxPool3d))[dims - 2]

        def double(inputs: int, outputs: int) -> nn.Sequential:
            pairs = ((inputs, outputs), (outputs, outputs))
            blocks = [(conv(a, b, 3, padding=1), norm(b), nn.ReLU(inplace=True)) for a, b in pairs]
            return nn.Sequential(*[layer for block in blocks for layer in block])

        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList([double(a, b) for a, b in zip([1, *widths[:-1]], widths, strict=True)])
        self.bottom = double(8 * width, 16 * width)
        self.pool = pool(2)
        self.up = nn.ModuleList([turned(2 * w, w, 2, 2) for w in reversed(widths)])
        self.merge = nn.ModuleList([double(2 * w, w) for w in reversed(widths)])
        self.out = conv(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((up(x), skips.pop()), 1))
        return self.out(x)


def resnet50() -> nn.Module:
    """torchvision's."""
    import torchvision

    return torchvision.models.resnet50()


def mobilenetv3() -> nn.Module:
    """torchvision's, the large one."""
    import torchvision

    return torchvision.models.mobilenet_v3_large()


#: Each network with the shape of its input.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int, int]]] = {
    "resnet50": (resnet50, (1, 3, 224, 224)),
    "mobilenetv3": (mobilenetv3, (1, 3, 224, 224)),
    "unet": (UNet, (1, 1, 256, 256)),
    "yolov5s": (YOLOv5s, (1, 3, 640, 640)),
}


def random_statistics(model: nn.Module) -> nn.Module:
    """Gives each BatchNorm statistics of its own: a fold that is wrong would not show at the initial 0 and 1."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
        nn.init.normal_(norm.running_mean, std=0.2)
        nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return model


def make(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """A network with random weights that are always the same, ready for inference."""
    torch.manual_seed(seed)
    factory, _ = NETWORKS[name]
    return random_statistics(factory(**options)).eval()
