"""Models of Keras' with random weights of a size that keeps signals alive, for `bench_tensorflow`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: Keras applications and the side of their input.
APPLICATIONS = {
    "Xception": 299,
    "ResNet50": 224,
    "ResNet101": 224,
    "ResNet50V2": 224,
    "InceptionV3": 299,
    "InceptionResNetV2": 299,
    "MobileNet": 224,
    "MobileNetV2": 224,
    "MobileNetV3Small": 224,
    "MobileNetV3Large": 224,
    "DenseNet121": 224,
    "DenseNet169": 224,
    "NASNetMobile": 224,
    "EfficientNetB0": 224,
    "EfficientNetB1": 240,
    "EfficientNetB2": 260,
    "EfficientNetV2B0": 224,
    "EfficientNetV2S": 384,
    "ConvNeXtTiny": 224,
    "ConvNeXtSmall": 224,
}

Inputs = dict[str, np.ndarray]


def made(name: str) -> tuple[Any, Inputs]:
    """A model with random weights, and inputs for a batch of one."""
    import keras

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    if name in APPLICATIONS:
        side = APPLICATIONS[name]
        build = getattr(keras.applications, name)
        model = build(weights=None, classifier_activation=None, input_shape=(side, side, 3))
        randomise(model, rng)
        return model, {model.inputs[0].name: rng.uniform(0, 255, (1, side, side, 3)).astype("float32")}
    model, inputs = OTHERS[name](keras, rng)
    randomise(model, rng)
    return model, inputs


def randomise(model: Any, rng: np.random.Generator) -> None:
    """He-scaled kernels, and scales, offsets and statistics of normalizations that are not neutral."""
    for weight in model.weights:
        path, shape = weight.path.rsplit("/", 1)[-1], tuple(weight.shape)
        if "seed" in path or not weight.dtype.startswith(("float", "bfloat")):
            continue
        if path == "moving_variance" or path == "variance" or path == "gamma":
            array = rng.uniform(0.5, 1.5, shape)
        elif len(shape) <= 1:
            array = rng.normal(0, 0.1, shape)
        elif path == "embeddings":
            array = rng.normal(0, 1, shape)
        else:
            depthwise = "depthwise" in path
            fan = np.prod(shape[:2]) if depthwise else np.prod(shape[:-1])
            array = rng.normal(0, np.sqrt(2 / max(1, fan)), shape)
        weight.assign(array.astype("float32"))


def _lstm(keras: Any, rng: np.random.Generator) -> tuple[Any, Inputs]:
    layers = keras.layers
    x = keras.Input((100, 64), name="x")
    h = layers.Bidirectional(layers.LSTM(128, return_sequences=True))(x)
    h = layers.LSTM(128)(h)
    return keras.Model(x, layers.Dense(10, name="y")(h)), {"x": rng.normal(size=(1, 100, 64)).astype("float32")}


def _gru(keras: Any, rng: np.random.Generator) -> tuple[Any, Inputs]:
    layers = keras.layers
    x = keras.Input((100, 64), name="x")
    h = layers.GRU(128, return_sequences=True)(x)
    h = layers.Bidirectional(layers.GRU(128))(h)
    return keras.Model(x, layers.Dense(10, name="y")(h)), {"x": rng.normal(size=(1, 100, 64)).astype("float32")}


def _transformer(keras: Any, rng: np.random.Generator) -> tuple[Any, Inputs]:
    layers = keras.layers
    x = h = keras.Input((128, 256), name="x")
    for _ in range(2):
        h = layers.LayerNormalization(epsilon=1e-6)(h + layers.MultiHeadAttention(8, 32)(h, h))
        wide = layers.Dense(1024, activation="gelu")(h)
        h = layers.LayerNormalization(epsilon=1e-6)(h + layers.Dense(256)(wide))
    return keras.Model(x, h), {"x": rng.normal(size=(1, 128, 256)).astype("float32")}


def _bert(keras: Any, rng: np.random.Generator) -> tuple[Any, Inputs]:
    import keras_hub

    model = keras_hub.models.BertBackbone(
        vocabulary_size=30522, num_layers=4, num_heads=8, hidden_dim=512, intermediate_dim=2048, max_sequence_length=128
    )
    mask = np.ones((1, 128), "int32")
    mask[:, 100:] = 0
    ids = rng.integers(0, 30522, (1, 128)).astype("int32")
    return model, {"token_ids": ids, "segment_ids": np.zeros((1, 128), "int32"), "padding_mask": mask}


OTHERS: dict[str, Callable[[Any, np.random.Generator], tuple[Any, Inputs]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "transformer": _transformer,
    "KerasHub BERT": _bert,
}
