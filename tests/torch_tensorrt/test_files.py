"""Files with engines in them: TorchScript and programs of `torch.export`, read in processes of their own."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("xxhash")

import torch

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from fuzz.engine_file import File
from neurenix.importers.files import has_engine
from neurenix.torch import engine_op, files
from neurenix.torch_tensorrt import Input
from tests.torch_tensorrt.models import QUICK, Nested, net, pictures

RANGE = {"inputs": [Input(min_shape=[1, 3, 16, 16], opt_shape=[4, 3, 16, 16], max_shape=[8, 3, 16, 16])]}
pytestmark = pytest.mark.filterwarnings("ignore:TorchScript is deprecated", "ignore:`torch.jit")

#: What a program that serves does: it knows the file, and imports nothing of ours but what defines the operator.
SERVING = """
import sys, torch
{first}
{read}
given = torch.load(sys.argv[2])
torch.save([run(x) for x in given], sys.argv[3])
"""
READ = {
    "ts": "run = torch.jit.load(sys.argv[1])",
    "pt2": "run = torch.export.load(sys.argv[1]).module()",
}


def compiled(model: Any, **given: Any) -> Any:
    return torch_tensorrt.compile(model, **{**QUICK, **RANGE, **given})


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-5, atol=1e-5)


def saved(folder: Path, kind: str, model: Any) -> Path:
    path = folder / f"m.{kind}"
    if kind == "ts":
        torch.jit.save(compiled(model, ir="ts"), path)
    else:
        torch_tensorrt.save(compiled(model), path)
    return path


@pytest.mark.parametrize("kind", ["ts", "pt2"])
def test_another_process_reads_it(tmp_path: Path, kind: str) -> None:
    model = net(cut=True)
    path = saved(tmp_path, kind, model)
    given = [pictures(2), pictures(5)]
    torch.save(given, tmp_path / "given")
    text = SERVING.format(first="import neurenix.torch", read=READ[kind])
    command = [sys.executable, "-c", text, path, tmp_path / "given", tmp_path / "found"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for found, x in zip(torch.load(tmp_path / "found"), given, strict=True):
        same(found, model(x))


def test_torch_says_what_is_missing_where_nothing_of_ours_is_imported(tmp_path: Path) -> None:
    path = saved(tmp_path, "ts", net())
    text = f"import torch; torch.jit.load({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "neurenix::run" in done.stderr


@pytest.mark.parametrize("kind", ["ts", "pt2"])
def test_load_opens_both(tmp_path: Path, kind: str) -> None:
    model, x = net(), pictures(3)
    found = torch_tensorrt.load(saved(tmp_path, kind, model))
    same((found if kind == "ts" else found.module())(x), model(x))


def test_buffers_and_streams_of_torch_take_it() -> None:
    model, x = net(), pictures()
    stream = io.BytesIO()
    torch.jit.save(compiled(model), stream, _extra_files={"about": "a note"})
    stream.seek(0)
    extra = {"about": ""}
    same(torch.jit.load(stream, _extra_files=extra)(x), model(x))
    assert extra["about"] in ("a note", b"a note")


def test_programs_of_arguments_by_name_and_in_lists(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Nested().eval()
    arguments = {
        "arg_inputs": [Input(min_shape=[2, 8], opt_shape=[4, 8], max_shape=[9, 8])],
        "kwarg_inputs": {"scale": Input(shape=[10]), "rest": [Input(shape=[10])]},
    }
    made = torch_tensorrt.compile(model, **arguments, **QUICK)
    torch_tensorrt.save(made, tmp_path / "m.pt2")
    run = torch_tensorrt.load(tmp_path / "m.pt2").module()
    x, scale, rest = torch.randn(7, 8), torch.randn(10), [torch.randn(10)]
    found, wanted = run(x, scale=scale, rest=rest), model(x, scale=scale, rest=rest)
    same(found["scaled"], wanted["scaled"])
    same(found["sums"][0], wanted["sums"][0])
    with pytest.raises(nx.UnsupportedError, match="by position"):
        torch_tensorrt.save(made, tmp_path / "m.ts", output_format="torchscript")


def test_a_program_is_saved_for_other_inputs(tmp_path: Path) -> None:
    model = net()
    torch_tensorrt.save(compiled(model), tmp_path / "m.pt2", inputs=[pictures(2)])
    run = torch_tensorrt.load(tmp_path / "m.pt2").module()
    same(run(x := pictures(2)), model(x))
    with pytest.raises((AssertionError, RuntimeError), match=r"[Gg]uard|shape"):
        run(pictures(3))


def test_a_file_holds_the_weights_once(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512)).eval()
    made = torch_tensorrt.compile(model, inputs=[torch.randn(2, 512)], **QUICK)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    for kind in ("exported_program", "torchscript"):
        torch_tensorrt.save(made, tmp_path / "m", output_format=kind)
        assert weights < (tmp_path / "m").stat().st_size < 1.2 * weights


def test_an_engine_of_another_machine_is_planned_anew(tmp_path: Path) -> None:
    model, x = net(), pictures()
    made = compiled(model)
    (part,) = made.engines
    file = File.read(part.engine.numpy().tobytes())
    file.header["times"] = {
        "cuda NVIDIA H200 sm_90 132 SMs cudnn 9.19|MatMul|0|float32[2x64]plain>float32[2x32]plain": 5000
    }
    part.register_buffer("engine", torch.frombuffer(bytearray(file.written()), dtype=torch.uint8))
    torch.jit.save(made, tmp_path / "m.ts")
    same(torch.jit.load(tmp_path / "m.ts")(x), model(x))


def test_torchscript_of_others_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(net(), pictures()), tmp_path / "m.ts")
    with pytest.raises(nx.UnsupportedError, match=r"(?s)no engine of ours.*torch.jit.load opens it"):
        torch_tensorrt.load(tmp_path / "m.ts")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(nx.FileError):
        torch_tensorrt.load(tmp_path / "missing.ts")
    (tmp_path / "endless.pt2").symlink_to("/dev/zero")
    with pytest.raises(nx.FileError, match="a device or a pipe"):
        torch_tensorrt.load(tmp_path / "endless.pt2")
    assert not has_engine(tmp_path / "endless.pt2")
    (tmp_path / "text.ts").write_text("no archive")
    with pytest.raises(nx.FormatError, match="no file of torch's"):
        torch_tensorrt.load(tmp_path / "text.ts")
    for name in ("archive/constants.pkl", "something"):
        with zipfile.ZipFile(tmp_path / "odd.ts", "w") as archive:
            archive.writestr(name, b"\x80")
        with pytest.raises(nx.FormatError, match=r"can't read it|no torch\.export program"):
            torch_tensorrt.load(tmp_path / "odd.ts")
    with pytest.raises(nx.InvalidArgumentError, match="output_format"):
        torch_tensorrt.save(compiled(net()), tmp_path / "m", output_format="onnx")
    with pytest.raises(nx.UnsupportedError, match="no compiled module"):
        torch_tensorrt.save(net(), tmp_path / "m")
    with pytest.raises(nx.FileError):
        torch_tensorrt.save(compiled(net()), tmp_path / "missing" / "m.pt2")


def test_bytes_that_are_no_engine_are_refused() -> None:
    made, x = compiled(net()), pictures()
    data = made.engines[0].engine
    for wrong in (data[:500].clone(), torch.zeros(64, dtype=torch.uint8), data.float(), data.clone().reshape(1, -1)):
        with pytest.raises(nx.FormatError):
            torch.ops.neurenix.run(wrong, [x], "")
    flipped = data.clone()
    flipped[len(flipped) // 2 :] ^= 0xFF
    with pytest.raises(nx.FormatError):
        torch.ops.neurenix.run(flipped, [x], "")
    with pytest.raises(nx.InvalidArgumentError, match="the number of tensors"):
        torch.ops.neurenix.run(data, [x, x], "")
    with pytest.raises(nx.InvalidArgumentError, match="another dtype"):
        torch.ops.neurenix.run(data, [x.double()], "")


def test_the_operator_keeps_torchs_rules() -> None:
    made, x = compiled(net()), pictures()
    part = made.engines[0]
    torch.library.opcheck(torch.ops.neurenix.run.default, (part.engine, [x], part._signature))


def test_many_files_one_after_the_other_leave_no_engines_behind() -> None:
    made, x = compiled(net()), pictures()
    stream = io.BytesIO()
    torch.jit.save(made, stream)
    for _ in range(20):
        stream.seek(0)
        torch.jit.load(stream)(x)
    del made
    assert len(engine_op._OPEN) < 20


def test_many_threads_call_one_module() -> None:
    model, x = net(), pictures()
    stream = io.BytesIO()
    torch.jit.save(compiled(model), stream)
    stream.seek(0)
    run = torch.jit.load(stream)
    wanted, found = model(x), []
    threads = [threading.Thread(target=lambda: found.append(run(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for one in found:
        same(one, wanted)


@pytest.mark.parametrize(("place", "value"), [(8, 0x01), (10, 99)], ids=["encrypted", "compression"])
def test_entries_that_no_reader_opens_are_no_engine(tmp_path: Path, place: int, value: int) -> None:
    path = tmp_path / "m.ts"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/code/a.py", "ops.neurenix.run")
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"PK\x01\x02") + place] = value
    path.write_bytes(whole)
    with pytest.raises(nx.errors.UnsupportedError, match="no engine of ours"):
        files.engine_of(path)
