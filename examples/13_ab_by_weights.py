"""Two versions of a model behind one address of Ray Serve: each user gets one of them, by the weights of a split.

    pip install ".[ray]" && python examples/13_ab_by_weights.py

Versions and split are applications of their own: weights change while versions go on. A user stays with a version;
where the second one's weight grows, users of the first move to it and none moves back.
"""

import hashlib
import tempfile
from collections import Counter

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

import neurenix as nx
from neurenix.serve import Client
from neurenix.serve.ray import application


class Split:
    """Passes requests on to the application that stands for the user in the header `x-user`, or for the address."""

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights
        self._versions = {name: serve.get_app_handle(name) for name in weights}

    def version_of(self, user: str) -> str:
        place = int(hashlib.sha256(user.encode()).hexdigest(), 16) / 2**256 * sum(self._weights.values())
        for name, weight in self._weights.items():
            if place < weight:
                return name
            place -= weight
        return name

    async def __call__(self, request: Request) -> Response:
        name = self.version_of(request.headers.get("x-user", request.client.host))
        asked = (request.url.path, dict(request.headers), await request.body())
        status, headers, body = await self._versions[name].answer.remote(*asked)
        return Response(body, status, {**headers, "x-version": name})


def deploy(folder: str) -> dict[str, np.ndarray]:
    """Serves two networks of different weights under one name; gives what each makes of ones."""
    answers = {}
    for name in ("first", "second"):
        model = nx.hardware.get_backend("cpu").optimize_model(nx.nn.Linear(16, 4), {"input": (1, 16)}, threads=1)
        model.save(f"{folder}/{name}.engine")
        answers[name] = model(np.ones((1, 16), np.float32))
        serve.run(application(f"net={folder}/{name}.engine", cpus=0.5), name=name, route_prefix=None)
    return answers


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": 18766})
    with tempfile.TemporaryDirectory() as folder:
        answers = deploy(folder)
        for weights in ({"first": 0.9, "second": 0.1}, {"first": 0.5, "second": 0.5}):
            serve.run(serve.deployment(Split, ray_actor_options={"num_cpus": 0.1}).bind(weights), name="split")
            seen: Counter[str] = Counter()
            for user in range(200):
                client = Client("http://127.0.0.1:18766", headers={"x-user": str(user)})
                found = client.infer("net", {"input": np.ones((1, 16), np.float32)})["output"]
                seen.update(name for name, answer in answers.items() if np.allclose(found, answer, atol=1e-5))
            print(f"weights {weights}: {seen['first']} users of 200 got the first version, {seen['second']} the second")


if __name__ == "__main__":
    main()
