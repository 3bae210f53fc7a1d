"""A model repository: engines with what their reference gives, and what is to be refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from neurenix.hardware import get_backend
from neurenix.shapes import Shape
from tests.capi import models
from tests.serve import models as served
from tests.serve.models import rows

BACKEND = 'backend: "neurenix"\n'
TOY = {"x": Shape(min=(1, 16), opt=(8, 16), max=(16, 16))}
#: Rows that no profile of "padded" holds are filled up to the least that one does.
PADDED = {"x": Shape(min=(4, 16), opt=(4, 16), max=(8, 16))}
EXPLICIT = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 16 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 20000 }
parameters { key: "threads" value { string_value: "1" } }
model_warmup {
  name: "rows" batch_size: 8
  inputs { key: "x" value { data_type: TYPE_FP32 dims: 16 random_data: true } }
}
"""
#: Ports of the perceptron, with what is wrong in one of them.
PORTS = """
input {{ name: "{0}" data_type: {1} dims: [-1, {2}] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [-1, 4] }}
"""
#: A part of what the perceptron has: the rest is put in.
PARTIAL = {
    "only_rows": "max_batch_size: 4\n",
    "only_input": 'max_batch_size: 4\ninput { name: "x" data_type: TYPE_FP32 dims: [2, 8] reshape { shape: 16 } }\n',
    "only_output": 'max_batch_size: 4\noutput { name: "y" data_type: TYPE_FP32 dims: 4 }\n',
    "whole_input": 'input { name: "x" data_type: TYPE_FP32 dims: [-1, 16] }\n',
}
#: Requests that come within the delay are one batch.
TABLE = """
max_batch_size: 8
dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 500000 }
parameters { key: "warm_up" value { string_value: "on" } }
parameters { key: "providers" value { string_value: "cuda, cpu" } }
instance_group { kind: KIND_CPU }
"""
#: What is to be refused: the configuration, and what the error says.
REFUSED = {
    "sequence": ("sequence_batching {}\nmax_batch_size: 4\n", "sequence_batching is not supported"),
    "dtype": (PORTS.format("x", "TYPE_FP16", 16), "says TYPE_FP16, the engine has TYPE_FP32"),
    "name": (PORTS.format("X", "TYPE_FP32", 16), "has an input 'X' that the engine has not; it has: x"),
    "dims": (PORTS.format("x", "TYPE_FP32", 17), "the engine has [-1, 16]"),
    "rows": (
        "max_batch_size: 64\n"
        'input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 4 }\n',
        "the profiles of the engine end at 16",
    ),
    "path": ('default_model_filename: "../../toy/1/model.engine"\n', "expected the name of a file"),
    "threads": ('parameters { key: "threads" value { string_value: "many" } }\n', "a number from 1 to 4096"),
    "warm_up": ('parameters { key: "warm_up" value { string_value: "maybe" } }\n', "'maybe'; expected on or off"),
    "providers": (
        'parameters { key: "providers" value { string_value: "gpu,cpu" } }\ninstance_group { kind: KIND_CPU }\n',
        "'gpu,cpu'; expected some of tensorrt, cuda, cpu",
    ),
    "optional": (
        PORTS.format("x", "TYPE_FP32", 16).replace("16] }", "16] optional: true }", 1),
        "input 'x': optional: true is not supported",
    ),
    "ragged": (
        "max_batch_size: 16\n"
        'input { name: "x" data_type: TYPE_FP32 dims: 16 allow_ragged_batch: true } '
        'output { name: "y" data_type: TYPE_FP32 dims: 4 }\n',
        "input 'x': allow_ragged_batch: true is not supported",
    ),
    "decoupled": ("model_transaction_policy { decoupled: true }\n", "decoupled: true } is not supported"),
    "batch_input": (
        'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32 source_input: "x" }\n',
        "batch_input is not supported",
    ),
    "batch_output": (
        'batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" }\n',
        "batch_output is not supported",
    ),
    "more_rows": ("max_batch_size: 64\n", "the profiles of the engine end at 16"),
    "other_output": (
        'output { name: "z" data_type: TYPE_FP32 dims: [-1, 4] }\n',
        "an output 'z' that the engine has not",
    ),
}
#: What a server that puts nothing in refuses, and says that one should add.
LACKING = {
    "nothing": (
        "",
        'add `max_batch_size: 16 input { name: "x" data_type: TYPE_FP32 dims: [16] } '
        'output { name: "y" data_type: TYPE_FP32 dims: [4] }`',
    ),
    "no_input": (PARTIAL["only_output"], 'add `input { name: "x" data_type: TYPE_FP32 dims: [16] }`'),
    "no_output": (PARTIAL["whole_input"], 'add `output { name: "y" data_type: TYPE_FP32 dims: [-1, 4] }`'),
}


def engine(model: onnx.ModelProto, shapes: Any, path: Path) -> None:
    """Writes the engine of a model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    get_backend("cpu").optimize_model(model, shapes, optimization_level=1, verify=False).save(path)


def expect(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Writes inputs and what the reference gives for them."""
    wanted = ReferenceEvaluator(model).run(None, dict(inputs))
    names = [port.name for port in model.graph.output]
    given = {f"in.{name}": array for name, array in inputs.items()}
    np.savez(path, **given, **{f"out.{name}": array for name, array in zip(names, wanted, strict=True)})


def write(folder: Path, expected: Path) -> None:
    """Writes the repository, and what its models are to give."""
    rng = np.random.default_rng()
    x = rng.standard_normal((7, 16)).astype(np.float32)
    toy = models.perceptron()
    plain = folder / "toy" / "1" / "model.engine"
    engine(toy, TOY, plain)
    configure(folder / "toy")
    expect(toy, {"x": x}, expected / "toy.npz")
    for name, config in {"explicit": EXPLICIT, "named": 'default_model_filename: "net.bin"\n'}.items():
        copy(plain, folder / name / "1" / ("net.bin" if name == "named" else "model.plan"))
        configure(folder / name, config)
        expect(toy, {"x": x[:3]}, expected / f"{name}.npz")
    engine(toy, PADDED, folder / "padded" / "1" / "model.engine")
    configure(folder / "padded")
    expect(toy, {"x": x[:3]}, expected / "padded.npz")
    half = models.perceptron(models.HALF)
    engine(half, {"x": (4, 16)}, folder / "half" / "1" / "model.engine")
    configure(folder / "half")
    expect(half, {"x": x[:4].astype(np.float16)}, expected / "half.npz")
    mixture = models.mixture()
    ids, mask = rng.integers(0, 10, 7), rng.integers(0, 2, (7, 1)).astype(bool)
    inputs = {"ids": ids, "mask": mask, "scale": np.asarray(rng.standard_normal(), np.float32)}
    engine(mixture, {name: array.shape for name, array in inputs.items()}, folder / "mixture" / "1" / "model.engine")
    configure(folder / "mixture")
    expect(mixture, inputs, expected / "mixture.npz")
    of_data = models.of_data()
    engine(of_data, {"x": (16,)}, folder / "of_data" / "1" / "model.engine")
    configure(folder / "of_data")
    expect(of_data, {"x": x[0]}, expected / "of_data.npz")
    for name, config in PARTIAL.items():
        copy(plain, folder / name / "1" / "model.engine")
        configure(folder / name, config)
    engine(rows(), {"index": Shape(min=(1, 1), opt=(8, 1), max=(8, 1))}, folder / "table" / "1" / "model.engine")
    configure(folder / "table", TABLE)
    _versions(folder, x, expected)
    _refused(folder, plain)


def write_lacking(folder: Path) -> None:
    """Writes what a server that puts nothing in is to refuse, and a model that it takes."""
    plain = folder / "explicit" / "1" / "model.engine"
    engine(models.perceptron(), TOY, plain)
    configure(folder / "explicit", EXPLICIT)
    for name, (config, _) in LACKING.items():
        copy(plain, folder / name / "1" / "model.engine")
        configure(folder / name, config)


def with_bias(values: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """The perceptron with this bias behind its last layer."""
    model = models.perceptron()
    bias = next(one for one in model.graph.initializer if one.name == "b2")
    bias.CopyFrom(onnx.numpy_helper.from_array(values, "b2"))
    return model


def _versions(folder: Path, x: np.ndarray[Any, Any], expected: Path) -> None:
    for version in (1, 2):
        model = with_bias(np.full(4, version, np.float32))
        engine(model, TOY, folder / "versions" / str(version) / "model.engine")
        expect(model, {"x": x}, expected / f"versions.{version}.npz")
    configure(folder / "versions", "version_policy { all {} }\n")


def _refused(folder: Path, plain: Path) -> None:
    for name, (config, _) in REFUSED.items():
        copy(plain, folder / name / "1" / "model.engine")
        configure(folder / name, config)
    for name, file in {"onnx": "model.onnx", "broken": "model.engine"}.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / file).write_bytes(plain.read_bytes()[:3000])
        configure(folder / name)
    (folder / "empty" / "1").mkdir(parents=True)
    configure(folder / "empty")


def of_serve(folder: Path) -> None:
    """Writes the models of the tests of `neurenix serve`, as engines."""
    for name, make in served.MODELS.items():
        model = make()
        shapes = {port.name: _any_batch(port) for port in model.graph.input}
        engine(model, shapes, folder / name / "1" / "model.engine")
        configure(folder / name)


def _any_batch(port: onnx.ValueInfoProto) -> Any:
    """1 to 16 rows, where the model takes any number; 1 to 64 along other open dimensions."""
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in port.type.tensor_type.shape.dim]
    if None not in dims:
        return tuple(dims)
    least, usual, most = (tuple(one if dim is None else dim for dim in dims[1:]) for one in (1, 4, 64))
    return Shape(min=(1, *least), opt=(4, *usual), max=(16, *most))


def copy(source: Path, place: Path) -> None:
    """Copies a file into a folder that is made for it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(source.read_bytes())


def configure(folder: Path, text: str = "") -> None:
    """Writes a model's configuration."""
    (folder / "config.pbtxt").write_text(BACKEND + text)
