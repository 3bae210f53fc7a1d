"""The page of a report: its data, and what a browser makes of it."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import InvalidArgumentError, nn, reports
from neurenix.hardware.optimized import Report
from neurenix.hardware.tensorrt import TensorRTBackend

onnx = pytest.importorskip("onnx")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")

#: What the page is made to do, and to tell.
DRIVER = """
<script>
const told = {};
const type = (words) => { at("search").value = words; at("search").dispatchEvent(new Event("input")); };
const press = (key) => at("search").dispatchEvent(new KeyboardEvent("keydown", { key }));
const shades = () => getComputedStyle(document.body).backgroundColor;
told.light = (theme("light"), shades());
told.dark = (theme("dark"), shades());
type("SEARCHED");
told.hits = at("found").textContent;
press("Enter");
told.details = at("details").innerText;
told.chosen = Object.values(views).map((view) => view.chosen);
type("");
const view = views.after, scale = view.view.scale;
view.canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, cancelable: true }));
told.zoomed = view.view.scale / scale;
const left = view.view.x;
view.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", cancelable: true }));
told.panned = view.view.x - left;
view.fit();
const start = performance.now();
for (let i = 0; i < 10; i++) view.draw();
told.draw = (performance.now() - start) / 10;
told.overlaps = Object.values(views).flatMap((v) => {
  const rows = new Map();
  v.nodes.forEach((n) => rows.set(n.y, [...(rows.get(n.y) || []), n.x]));
  return [...rows.values()].map((xs) => xs.sort((a, b) => a - b))
    .flatMap((xs) => xs.slice(1).filter((x, i) => x - xs[i] < NODE.width - 0.01));
}).length;
told.upwards = Object.values(views).flatMap((v) => v.edges.filter(([a, b]) => v.nodes[a].y >= v.nodes[b].y)).length;
told.nodes = Object.values(views).map((v) => v.nodes.length);
told.rows = document.querySelectorAll("#kernel-table tbody tr").length;
at("only-fused").click();
told.fused = document.querySelectorAll("#kernel-table tbody tr:not([hidden])").length;
told.blocks = document.querySelectorAll("svg.arena rect").length;
told.empty = [...document.querySelectorAll(".empty")].map((node) => node.textContent);
told.strip = document.querySelectorAll("svg.strip rect").length;
document.body.append(Object.assign(document.createElement("pre"), { id: "told", textContent: JSON.stringify(told) }));
</script></body>
"""


class Reader(html.parser.HTMLParser):
    """What the page asks for from outside, and the text of elements with an id."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.texts: dict[str, str] = {}
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.inside = found.get("id") or ""
        self.links += [found[name] or "" for name in ("src", "href", "srcset", "data") if name in found]

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside] = self.texts.get(self.inside, "") + data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


@pytest.fixture(scope="module")
def backend() -> TensorRTBackend:
    return TensorRTBackend(optimization_level=1)


@pytest.fixture(scope="module")
def report(backend: TensorRTBackend) -> Report:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Softmax(1))
    model = backend.optimize_model(module, (1, 3, 16, 16))
    return model.report(model.profile(iterations=2))


def deep(blocks: int) -> Any:
    """Blocks of eleven layers with branches, and long edges from every ninth to the end."""
    helper, rng = onnx.helper, np.random.default_rng(0)
    nodes, weights, now = [], [], "x"
    for i in range(blocks):
        name = f"w{i}"
        weights.append(onnx.numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32) / 8, name))
        chain = ["Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Exp", "Tanh"]
        a, b = f"a{i}_0", f"b{i}"
        nodes.append(helper.make_node("MatMul", [now, name], [a], name=f"block{i}/product"))
        for step, op in enumerate(chain):
            nodes.append(helper.make_node(op, [a], [f"a{i}_{step + 1}"], name=f"block{i}/{op}{step}"))
            a = f"a{i}_{step + 1}"
        nodes.append(helper.make_node("Sigmoid", [now], [b], name=f"block{i}/side"))
        nodes.append(helper.make_node("Mul", [a, b], [f"m{i}"], name=f"block{i}/join"))
        nodes.append(helper.make_node("Add", [f"m{i}", now], [f"x{i}"], name=f"block{i}/add"))
        now = f"x{i}"
    nodes.append(helper.make_node("Concat", [f"x{i}" for i in range(0, blocks, 9)], ["y"], axis=1, name="end"))
    info = helper.make_tensor_value_info
    ports = [info("x", 1, [4, 8])], [info("y", 1, None), info(now, 1, None)]
    graph = helper.make_graph(nodes, f"deep{blocks}", *ports, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def drive(page: str, folder: Path, searched: str) -> dict[str, Any]:
    """What the page tells after somebody has used it."""
    path = folder / "page.html"
    path.write_text(page.replace("</body>", DRIVER.replace("SEARCHED", searched)))
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", path.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-ready="yes"' in dumped
    return dict(json.loads(read(dumped).texts["told"]))


def test_the_page_stands_alone(report: Report) -> None:
    page = reports.page(report, "a title with </title><script>alert(1)</script>")
    reader = read(page)
    assert [link for link in reader.links if not link.startswith("#")] == []
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.[a-z]{2,}\S*", page))
    assert {address for address in addresses if "www.w3.org/2000/svg" not in address} == set()
    assert "<script>alert(1)" not in page
    assert "{{" not in page.partition('id="report"')[0]


def test_the_data_in_the_page_is_the_report(report: Report) -> None:
    assert json.loads(read(reports.page(report)).texts["report"]) == report
    odd = Report(report | {"notes": ["</script><b>", "{{title}} {{script}}", "\u2028 ü"]})
    page = reports.page(odd)
    assert json.loads(read(page).texts["report"])["notes"] == odd["notes"]
    assert "</script><b>" not in page


def test_saving(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == reports.page(report)
    report.save(tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == report
    with pytest.raises(InvalidArgumentError, match="a report is a page or JSON"):
        report.save(tmp_path / "r.pdf")
    with pytest.raises(OSError, match="the report can't be written"):
        report.save(tmp_path / "no" / "r.html")


@browser
def test_a_small_model_in_a_browser(report: Report, tmp_path: Path) -> None:
    told = drive(reports.page(report), tmp_path, "softmax")
    assert told["hits"].startswith("2 found")
    assert told["details"].startswith("Softmax")
    assert told["chosen"].count(None) == 1
    assert told["light"] != told["dark"]
    assert told["zoomed"] > 1.2
    assert told["panned"] < 0
    assert (told["overlaps"], told["upwards"]) == (0, 0)
    assert told["rows"] == len(report["kernels"])
    assert told["fused"] == sum(len(kernel["layers"]) > 1 for kernel in report["kernels"])
    assert told["blocks"] == len(report["memory"]["blocks"])
    assert told["strip"] == len(report["profile"])
    before, after = report["graph"]["before"], report["graph"]["after"][0]
    assert told["nodes"] == [len(graph["layers"]) + 2 for graph in (before, after)]


@browser
def test_a_thousand_layers_in_a_browser(backend: TensorRTBackend, tmp_path: Path) -> None:
    report = backend.optimize_model(deep(91)).report()
    assert len(report["graph"]["before"]["layers"]) >= 1000
    told = drive(reports.page(report), tmp_path, "block50/")
    assert int(told["hits"].split()[0]) >= 11
    assert (told["overlaps"], told["upwards"]) == (0, 0)
    # A picture while all of it is in sight; generous, as tests share the processor.
    assert told["draw"] < 200


@browser
def test_a_model_in_stages_in_a_browser(backend: TensorRTBackend, tmp_path: Path) -> None:
    """Where sizes depend on data there are several networks, which stand under each other."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> staged (float[4] x) => (int64[1,k] y)'
        " { a = Relu(x) n = NonZero(a) y = Neg(n) }"
    )
    report = backend.optimize_model(model).report()
    assert len(report["graph"]["after"]) == 2
    told = drive(reports.page(report), tmp_path, "neg")
    # The layer before and after, and what the second network gives.
    assert told["hits"].startswith("3 found")
    assert (told["overlaps"], told["upwards"]) == (0, 0)


@browser
def test_what_there_is_nothing_of(backend: TensorRTBackend, tmp_path: Path) -> None:
    """An engine from a file knows no source, and this one computes next to nothing."""
    model = backend.optimize_model(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18]> none (float[4] x) => (float[4] y) { y = Identity(x) }'
        )
    )
    model.save(tmp_path / "m.engine")
    report = backend.load(tmp_path / "m.engine").report()
    assert (report["memory"]["activations_unshared"], report["memory"]["reuse"]) == (0, 0)
    told = drive(reports.page(report), tmp_path, "input")
    text = "\n".join(told["empty"])
    assert "The engine came from a file" in text
    assert "No times are known" in text
    assert "Nothing lies in an arena" in text
    assert told["overlaps"] == 0
