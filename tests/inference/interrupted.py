"""A sliding window that ends in the middle: `python -m tests.inference.interrupted SOURCE OUT ENGINE WINDOWS`."""

from __future__ import annotations

import os
import signal
import sys

import zarr

from neurenix.inference import InferenceEngine

if __name__ == "__main__":
    source, out, engine, windows = sys.argv[1:]

    def stop(done: int, count: int) -> None:
        if done >= int(windows):
            os.kill(os.getpid(), signal.SIGKILL)

    InferenceEngine(engine, warmup=0).sliding_window_inference(
        zarr.open_array(source, mode="r"), (16, 12, 8), 0.4, 3, out=out, resume=True, progress=stop
    )
