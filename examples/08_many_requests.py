"""Many requests: one after another, and two at once beside the caller, in the order in which they were started.

pip install . && python examples/08_many_requests.py
"""

import time

import numpy as np

import neurenix as nx
from neurenix import nn
from neurenix.hardware import AsyncQueue, OptimizedModel

REQUESTS = 60


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def in_turn(model: OptimizedModel, images: list[np.ndarray]) -> list[np.ndarray]:
    return [model(image) for image in images]


def beside(model: OptimizedModel, images: list[np.ndarray]) -> list[np.ndarray]:
    answers: list[np.ndarray] = []

    def keep(outputs: dict[str, np.ndarray], _: object) -> None:
        answers.append(outputs["output"])

    # ordered: one call of the callback after another, as the requests were started, so that it needs no lock.
    with AsyncQueue(model, jobs=2, callback=keep, ordered=True) as queue:
        for image in images:
            queue.start_async(image)  # waits only while both jobs are taken
    return answers


def main() -> None:
    # One thread for each call, as several of them run at once.
    model = nx.hardware.get_backend("cpu").optimize_model(network(), {"input": (1, 3, 256, 256)}, threads=1)
    images = [nx.random.randn(1, 3, 256, 256) for _ in range(REQUESTS)]
    answers = []
    for way in (in_turn, beside):
        start = time.perf_counter()
        answers.append(way(model, images))
        print(f"{way.__name__}: {REQUESTS / (time.perf_counter() - start):.0f} requests a second")
    same = all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))
    print(f"the same answers in the same order: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
