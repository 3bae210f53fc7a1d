"""The command line: what it prints, writes and exits with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neurenix.cli import main, measure

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NEURENIX_CACHE_DIR", str(tmp_path / "cache"))
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[n,4] x) => (float[n,4] y, float[n,4] z)'
        " { y = Relu(x) z = Log(x) }"
    )
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capsys.readouterr()
    return code, out, err


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "info", "--knobs")
    assert code == 0
    assert "  cpu: available" in out
    assert "NEURENIX_THREADS=" in out
    code, out, _ = call(capsys, "info", "--json")
    assert [p["name"] for p in json.loads(out)["providers"]] == ["tensorrt", "cuda", "cpu"]


def test_run_with_files_and_validation(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.save(tmp_path / "x.npy", x)
    saved = tmp_path / "out.npz"
    load = ("--load-inputs", f"x:{tmp_path / 'x.npy'}", "--save-outputs", str(saved))
    code, out, _ = call(capsys, "run", model, *load, "--validate")
    assert code == 0
    assert out.startswith("y: dtype float32, shape 1x4, min 1.0, max 4.0, mean 2.5, not_finite 0\n")
    assert np.array_equal(np.load(saved)["y"], x)
    np.save(tmp_path / "x.npy", -x)
    # The only input need not be named.
    assert call(capsys, "run", model, "--load-inputs", str(tmp_path / "x.npy"))[1].startswith(
        "y: dtype float32, shape 1x4"
    )
    code, out, _ = call(capsys, "run", model, *load, "--validate")
    assert code == 1
    assert out.endswith("FAILED: z\n")


def test_a_build_is_said_in_the_words_of_options(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    how = ("--threads", "3", "--hint", "throughput", "--providers", "cpu", "--exclude", "tensorrt:Relu,Log")
    times = tmp_path / "times"
    code, out, _ = call(capsys, "run", model, "--shapes", "x:1x4", *how, "--timing-cache", str(times), "--report")
    assert code == 0 and "threads: 1 a call, 3 calls at once" in out and " threads 1 " in times.read_text()
    code, out, _ = call(capsys, "run", model, "--shapes", "x:1x4", "--deterministic", "--report")
    assert code == 0 and "deterministic: nothing was timed" in out
    code, _, err = call(capsys, "run", model, "--shapes", "x:1x4", "--exclude", "Relu")
    assert code == 1 and "expected: PROVIDER:OP,... as in tensorrt:Resize" in err


def test_run_compares(capsys: pytest.CaptureFixture[str], model: str) -> None:
    pytest.importorskip("onnxruntime")
    code, out, _ = call(capsys, "run", model, "--shapes", "x:3x4", "--compare", "onnxruntime", "--json")
    content = json.loads(out)
    assert content["outputs"]["y"]["error_onnxruntime"] == 0
    assert content["outputs"]["y"]["shape"] == "3x4"
    assert code == (0 if content["passed"] else 1)


def test_an_engine_runs_at_the_shapes_that_it_was_made_for(capsys: pytest.CaptureFixture[str], model: str) -> None:
    words = ("--min-shapes", "x:1x4", "--opt-shapes", "x:3x4", "--max-shapes", "x:5x4")
    engine = model.replace(".onnx", ".engine")
    assert call(capsys, "export", model, "-o", engine, *words)[0] == 0
    assert ", shape 3x4, " in call(capsys, "run", engine)[1]
    assert ", shape 2x4, " in call(capsys, "run", engine, "--shapes", "2x4")[1]
    assert call(capsys, "bench", engine, "--iterations", "3", "--warmup", "0")[0] == 0
    code, out, _ = call(capsys, "export", model, "-o", engine)
    assert code == 0 and "profile: n of any size, best at " in out
    assert "say it: --shapes x:1x4" in call(capsys, "run", engine)[2]


@pytest.mark.parametrize("peer", ["onnxruntime", "onnx", "openvino"])
def test_an_engine_is_compared_with_what_was_kept(capsys: pytest.CaptureFixture[str], model: str, peer: str) -> None:
    pytest.importorskip(peer)
    engine = model.replace(".onnx", ".engine")
    assert call(capsys, "export", model, "-o", engine, "--shapes", "x:2x4", "--precision", "fp32")[0] == 0
    for command in (("run", engine, "--compare", peer), ("bench", engine, "--against", peer)):
        code, out, err = call(capsys, *command)
        assert (code, out) == (1, "")
        assert "an engine file has no original to compare with" in err and "--load-outputs O.npz" in err
    kept = [model.replace("m.onnx", name) for name in ("I.npz", "O.npz")]
    saved = ("--shapes", "x:2x4", "--save-inputs", kept[0], "--save-outputs", kept[1])
    assert call(capsys, "run", model, *saved)[0] == 0
    assert call(capsys, "run", engine, "--load-inputs", kept[0], "--load-outputs", kept[1])[0] == 0


def test_a_missing_plugin_is_said_in_the_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18, "mine" : 1]> m (float[4] x) => (float[4] y) { y = mine.Doubles(x) }'
    )
    onnx.save(proto, tmp_path / "p.onnx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doubling.py").write_text(
        "import neurenix.hardware.tensorrt as trt\n"
        "@trt.register_plugin('Doubles')\n"
        "class Doubles(trt.IPluginV2):\n"
        "    def get_output_shape(self, shapes): return shapes[0]\n"
        "    def execute(self, inputs, outputs, stream): outputs[0][...] = 2 * inputs[0]\n"
    )
    code, out, err = call(capsys, "run", "p.onnx")
    assert (code, out) == (1, "") and "--plugins" in err
    script = "import sys; from neurenix.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def alone(*words: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, env=environment)
        return done.returncode, done.stderr

    plugins = ("--plugins", "doubling")
    assert alone("export", "p.onnx", "--precision", "fp32", *plugins)[0] == 0
    code, err = alone("run", "p.engine")
    assert code == 1 and "plugin Doubles version 1 is not registered" in err and "--plugins" in err
    assert alone("run", "p.engine", *plugins)[0] == 0


def test_a_dynamic_shape_must_be_said(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, err = call(capsys, "run", model)
    assert (code, out) == (1, "")
    assert err == (
        "neurenix run: the shape of an input is dynamic\n  tensor: x\n  got: ['n', 4]\n  hint: say it: --shapes x:1x4\n"
    )


def test_bench_prints_the_words_of_trtexec(capsys: pytest.CaptureFixture[str], model: str) -> None:
    code, out, _ = call(capsys, "bench", model, "--shapes", "x:1x4", "--iterations", "12", "--warmup", "1")
    assert code == 0
    for word in (
        "=== Performance summary ===",
        "Throughput: ",
        "Latency: min = ",
        "percentile(99%) = ",
        "Total Host Walltime: ",
    ):
        assert word in out
    # What was not measured has no line.
    assert not [word for word in ("GPU", "Enqueue", "H2D", "D2H", " = 0 ms") if word in out]
    assert out.splitlines()[-1] == f"&&&& PASSED neurenix bench {model}"


def test_bench_against_a_peer(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    target = tmp_path / "bench.json"
    arguments = ("--shapes", "x:2x4", "--iterations", "10", "--warmup", "1", "--against", "onnxruntime")
    code, out, _ = call(capsys, "bench", model, *arguments, "--json", str(target))
    content = json.loads(target.read_text())
    assert code == 0
    assert "onnxruntime" in out
    assert content["engines"]["onnxruntime"]["calls"] == content["engines"]["neurenix"]["calls"] == 10
    assert content["engines"]["neurenix"]["images_per_s"] == pytest.approx(
        2 * content["engines"]["neurenix"]["throughput_qps"]
    )


def test_engines_take_turns() -> None:
    order: list[str] = []
    runners = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = measure.measure(runners, 0, 0, 10)
    assert [len(t) for t in times.values()] == [10, 10]
    # One untimed call before each turn, and one to warm up.
    turn = measure.TURN + 1
    assert "".join(order) == "ab" + 2 * ("a" * turn + "b" * turn)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("bench", "{model}", "--shapes", "x:1x4", "--against", "tensorrt"), "there is no peer 'tensorrt'"),
        (("run", "{model}", "--shapes", "x:1xq"), "the shapes can't be read"),
        (("run", "{model}", "--shapes", "X:1x4"), "the nearest name is 'x'"),
        (("run", "nowhere.onnx"), "the model can't be read"),
        (
            ("run", "{model}", "--load-inputs", "x:nowhere.npy"),
            "the input can't be read: No such file or directory\n  got: nowhere.npy\n",
        ),
        (("run", "no.such.module:factory"), "there is no factory 'no.such.module:factory'"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], model: str, argv: tuple[str, ...], text: str) -> None:
    code, _, err = call(capsys, *(a.format(model=model) for a in argv))
    assert code == 1
    assert text in err


def test_wrong_usage_exits_with_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run"])
    assert caught.value.code == 2
