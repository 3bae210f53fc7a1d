"""Builds Triton's backend, and an environment with Triton to try it in.

python tools/triton.py environment FOLDER   a virtual environment with Triton (from a wheel), its client, and what the
                                            build of the backend needs
python tools/triton.py backend FOLDER       FOLDER/neurenix/libtriton_neurenix.so and what it needs: FOLDER is what
                                            tritonserver's --backend-directory takes
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "cpp" / "triton"
#: A whole Triton server in a wheel, its client, and the reader of JSON that the backend is built with.
PACKAGES = ("nvidia-pytriton==0.7.0", "tritonclient[grpc,http]>=2.50", "nlohmann-json==3.12.0")


def run(command: list[str]) -> None:
    """Runs a command, and ends with what it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def environment(folder: Path) -> Path:
    """Makes the environment where it is not there; gives its interpreter."""
    python = folder / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(folder)])
    # uv is there in CI, and five times as fast.
    by_uv = ["uv", "pip", "install", "--quiet", "--python", str(python), *PACKAGES]
    if shutil.which("uv") is None or subprocess.run(by_uv, capture_output=True, check=False).returncode:
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES])
    return python


def triton_headers() -> Path:
    """The folder of `triton/core/tritonbackend.h`: `$TRITON_INCLUDE_DIR`, or the source of a package of Cargo's."""
    given = os.environ.get("TRITON_INCLUDE_DIR")
    if given:
        return Path(given)
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path", str(SOURCES / "headers" / "Cargo.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Triton's headers are not there: set TRITON_INCLUDE_DIR\n{done.stderr}")
    packages = json.loads(done.stdout)["packages"]
    manifest = next(one["manifest_path"] for one in packages if one["name"] == "tritonserver-rs")
    return Path(manifest).parent / "core" / "include"


def json_headers(folder: Path | None) -> Path:
    """The folder of `nlohmann/json.hpp`: of an environment's package, or the system's."""
    found = sorted(folder.rglob("nlohmann/json.hpp")) if folder else []
    return found[0].parents[1] if found else Path("/usr/include")


def backend(folder: Path, env: Path | None, package: Path | None) -> Path:
    """Builds the backend into a folder; gives its library."""
    # The environment is made where the package is not installed yet.
    from neurenix import cpp

    with tempfile.TemporaryDirectory(prefix="neurenix-triton-") as build:
        paths = {
            "neurenix_DIR": package or cpp.cmake_dir(),
            "TRITON_INCLUDE_DIR": triton_headers(),
            "NLOHMANN_INCLUDE_DIR": json_headers(env),
        }
        options = [f"-D{name}={path}" for name, path in paths.items()]
        run(["cmake", "-S", str(SOURCES), "-B", build, *options])
        run(["cmake", "--build", build, "--parallel", "2"])
        run(["cmake", "--install", build, "--prefix", str(folder), "--strip"])
    return folder / "neurenix" / "libtriton_neurenix.so"


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("make", choices=["environment", "backend"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--environment", type=Path, help="one that was made, for the headers in it")
    parser.add_argument("--package", type=Path, help="the folder of neurenixConfig.cmake; default: that of this Python")
    arguments = parser.parse_args()
    if arguments.make == "environment":
        print(environment(arguments.folder))
    else:
        print(backend(arguments.folder, arguments.environment, arguments.package))


if __name__ == "__main__":
    main()
