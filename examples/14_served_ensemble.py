"""An ensemble on Ray Serve: members are deployments of their own, asked at once; mean and disagreement come back.

    pip install ".[ray]" && python examples/14_served_ensemble.py

Members may stand on other machines and GPUs, and each is scaled by itself. Where all of them fit into one process,
`neurenix.inference.Ensemble` does without the network between them.
"""

import asyncio
import tempfile
from typing import Any

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import neurenix as nx
from neurenix.errors import InvalidArgumentError
from neurenix.serve import Client
from neurenix.serve.ray import application
from neurenix.serve.retrying import decoded


class Ensemble:
    """Answers with the mean of its members' outputs, and their standard deviation as outputs `NAME_std`, in JSON."""

    def __init__(self, *members: Any) -> None:
        self._members = members

    async def __call__(self, request: Request) -> Response:
        asked = (request.url.path, dict(request.headers), await request.body())
        answers = await asyncio.gather(*(member.answer.remote(*asked) for member in self._members))
        for status, headers, body in answers:
            if status != 200:  # what one member refuses, the ensemble refuses with its words
                return Response(body, status, headers)
        outputs = [decoded(headers, body) for _, headers, body in answers]
        entries = []
        for name in outputs[0]:
            together = np.stack([output[name] for output in outputs]).astype(np.float64)
            entries += [entry(name, together.mean(0)), entry(f"{name}_std", together.std(0))]
        return JSONResponse({"model_name": "ensemble", "outputs": entries})


def entry(name: str, array: np.ndarray) -> dict[str, Any]:
    """An output as the protocol writes it."""
    return {"name": name, "datatype": "FP64", "shape": list(array.shape), "data": array.ravel().tolist()}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": 18767})
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        members, wanted = [], []
        for number in range(3):
            model = nx.hardware.get_backend("cpu").optimize_model(nx.nn.Linear(16, 4), {"input": (3, 16)}, threads=1)
            model.save(f"{folder}/{number}.engine")
            wanted.append(model(x).astype(np.float64))
            members.append(application(f"net={folder}/{number}.engine", cpus=0.5, name=f"member{number}"))
        ensemble = serve.deployment(Ensemble, ray_actor_options={"num_cpus": 0.1})
        serve.run(ensemble.bind(*members), name="ensemble")
        client = Client("http://127.0.0.1:18767")
        found = client.infer("net", {"input": x})
        try:
            client.infer("net", {"input": x[:, :15]})
        except InvalidArgumentError as error:
            print(f"refused: {error}")
    same = np.allclose(found["output"], np.mean(wanted, 0)) and np.allclose(found["output_std"], np.std(wanted, 0))
    print(f"3 members, output {found['output'].shape}: mean and deviation as numpy's: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
