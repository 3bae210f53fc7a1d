# The Python whose packages give oneDNN and for which the extension module is built.
export PYO3_PYTHON := env("PYO3_PYTHON", `command -v python3`)

# In a folder of its own, since nothing there can be linked: build.rs leaves C++ out.
clippy := "NEURENIX_LINT=1 CARGO_TARGET_DIR=\"${CARGO_TARGET_DIR:-target/lint}\" cargo clippy"

cpp_files := "'cpp/*.cc' 'cpp/*.h' 'examples/*.cc' 'tests/*.c' 'tests/*.cc' 'tests/cuda/recorded/*'"

# Lists the recipes.
default:
    @just --list

# Builds the extension module in place, for work on this checkout (put python/ on PYTHONPATH, or `pip install -e .`).
dev:
    # As maturin does: a module that names a libpython can't be loaded by another Python.
    PYO3_BUILD_EXTENSION_MODULE=1 cargo build --release
    cp "${CARGO_TARGET_DIR:-target}/release/libneurenix.so" python/neurenix/_native.abi3.so.part
    mv python/neurenix/_native.abi3.so.part python/neurenix/_native.abi3.so

# Builds the library of the C API, which is the crate without Python, into python/neurenix/_lib.
capi profile="release":
    cargo build --profile {{ profile }} --no-default-features
    cp "${CARGO_TARGET_DIR:-target}/{{ profile }}/libneurenix.so" python/neurenix/_lib/libneurenix.so.1.part
    strip python/neurenix/_lib/libneurenix.so.1.part
    mv python/neurenix/_lib/libneurenix.so.1.part python/neurenix/_lib/libneurenix.so.1

# Builds the wheel into dist/, stripped, with the tag that auditwheel finds, and its debug information beside it.
wheel: (capi "wheel") wheel-alone

# As `wheel`, without building the library of the C API, which takes as long again: one that is there is taken along.
wheel-alone:
    rm -rf dist target/wheels
    CARGO_PROFILE_WHEEL_DEBUG=line-tables-only CARGO_PROFILE_WHEEL_STRIP=none \
        maturin build --interpreter "$PYO3_PYTHON" --compatibility linux --out target/wheels
    # build.rs has put libgomp into the wheel; a copy of auditwheel's would be a second team of threads.
    auditwheel repair --strip --exclude libgomp.so.1 --wheel-dir dist target/wheels/*.whl
    objcopy --only-keep-debug "${CARGO_TARGET_DIR:-target}/wheel/libneurenix.so" dist/_native.abi3.so.debug
    auditwheel show dist/*-manylinux_*.whl
    ls -l dist

# The library of the C API without optimisation, which Python's tests take where `just capi` was not called.
capi-debug:
    cargo build --no-default-features

# Rust's tests, without Python.
test-rust *args: capi-debug
    cargo test --no-default-features {{ args }}

# Python's tests, on the module that `just dev` built.
test-python *args: dev
    PYTHONPATH=python "$PYO3_PYTHON" -m pytest {{ args }}

# Writes the stub of the native module, as `just dev` built it; with --check, says whether it is up to date.
stubs *args:
    PYTHONPATH=python "$PYO3_PYTHON" tools/stubs.py {{ args }}

# Builds the documentation into site/, strictly; wants the extra `docs`.
docs:
    NO_MKDOCS_2_WARNING=1 "$PYO3_PYTHON" -m mkdocs build --strict

# Everything that must be clean before a commit.
lint: lint-python lint-cpp lint-rust

# What of lint needs Python's packages.
lint-python:
    ruff check .
    ruff format --check .
    mypy

# What of lint needs clang-format.
lint-cpp:
    git ls-files {{ cpp_files }} | xargs --no-run-if-empty clang-format --dry-run -Werror

# What of lint needs Rust, and the packages that the build needs.
lint-rust:
    cargo fmt --check
    # Tests are built without Python; with it, the library alone has more than they see.
    {{ clippy }} -- -D warnings
    {{ clippy }} --tests --no-default-features -- -D warnings

# Puts everything into the shape that `just lint` wants.
format:
    ruff check --fix .
    ruff format .
    cargo fmt
    git ls-files {{ cpp_files }} | xargs --no-run-if-empty clang-format -i
