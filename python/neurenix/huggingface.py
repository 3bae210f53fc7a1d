"""Models of Hugging Face's transformers as engines, in optimum's shape: `NeurenixModelForXxx.from_pretrained(folder)`.

They take the place of the model in a pipeline: `pipeline("text-classification", model=model, tokenizer=tokenizer)`.
Nothing is downloaded, and no code of a model's folder is executed.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from neurenix.errors import FileError, FormatError, InvalidArgumentError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.importers.torch.silence import first_line
from neurenix.inference.opening import Device
from neurenix.log import LOG
from neurenix.packages import need
from neurenix.shapes import Shape

#: Batches up to this, and sequences up to what the model takes, unless shapes are given.
MOST_BATCH = 16
#: What is optimised for: the length of a sentence or two.
USUAL_LENGTH = 64

ENGINE, ABOUT = "model.engine", "neurenix.json"

#: What models take that are made for text or pictures, in this order.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "pixel_values")


class NeurenixModel:
    """An encoder of transformers' as an engine.

    Calls take what the model of transformers takes, by name, and give what it gives, of the arrays' own kind; a mask
    that is left out is all ones, token types are zeros.
    """

    _auto: ClassVar = "AutoModel"
    _output: ClassVar = "BaseModelOutputWithPooling"
    _names: ClassVar[tuple[str, ...]] = ("last_hidden_state", "pooler_output")
    base_model_prefix = "neurenix"

    def __init__(self, model: OptimizedModel, config: Any, names: tuple[str, ...], device: str = "cpu") -> None:
        self.model = model
        self.config = config
        self.generation_config = None
        self._outputs = names
        self._device = device
        self._taken = tuple(port.name for port in model.inputs)
        self.main_input_name = "pixel_values" if "pixel_values" in self._taken else "input_ids"
        self.name_or_path = str(getattr(config, "name_or_path", ""))

    @classmethod
    def from_pretrained(
        cls,
        model_id: str | os.PathLike[str],
        *,
        export: bool | None = None,
        shapes: Mapping[str, Any] | None = None,
        precision: str = "fp32",
        device: Any = "auto",
        subfolder: str = "",
        config: Any = None,
        **options: Any,
    ) -> Any:
        """The model of a folder: the engine that `save_pretrained` wrote there, or a model of transformers.

        `export`: True builds from the weights though there is an engine, False takes an engine alone. `shapes`: of the
        inputs, as `optimize_model` takes them; without them batches of 1 to 16, sequences of any length that the model
        takes, pictures of its own size. `options`: those of `optimize_model`, or of `load`.

        Raises `FileError` where the folder has no model, `UnsupportedError` for what can't be imported, and as
        `optimize_model`.
        """
        folder = Path(model_id) / subfolder
        if not folder.is_dir():
            raise FileError(
                "there is no such folder, and nothing is downloaded",
                expected="a folder with config.json and weights",
                got=str(folder),
                hint=f"hf download {model_id} --local-dir FOLDER, and give that",
            )
        has_engine = (folder / ENGINE).is_file()
        if export is False and not has_engine:
            raise FileError("the folder has no engine", expected=ENGINE, got=str(folder), hint="leave export=False out")
        place = Device.of(device)
        if has_engine and not export:
            if shapes is not None or precision != "fp32":
                raise InvalidArgumentError(
                    "the engine of the folder is built already", hint="export=True builds one from the weights"
                )
            return cls._of_engine(folder, place, options)
        return cls._of_weights(folder, place, config, shapes, precision, options)

    @classmethod
    def _of_engine(cls, folder: Path, place: Device, options: Mapping[str, Any]) -> Any:
        transformers = need("transformers", "neurenix.huggingface")
        try:
            about = json.loads((folder / ABOUT).read_text())
            names, task = tuple(map(str, about["outputs"])), str(about["class"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{ABOUT} does not tell of the engine: {first_line(error)}", got=str(folder)) from error
        if task != cls.__name__:
            raise InvalidArgumentError("the engine is of another task", expected=task, got=cls.__name__)
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return cls(place.backend.load(folder / ENGINE, **options), config, names, place.name)

    @classmethod
    def _of_weights(
        cls, folder: Path, place: Device, config: Any, shapes: Any, precision: str, options: Mapping[str, Any]
    ) -> Any:
        transformers = need("transformers", "neurenix.huggingface")
        auto = getattr(transformers, cls._auto)
        given = {} if config is None else {"config": config}
        try:
            model = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **given)
        except (OSError, ValueError) as error:
            raise FileError(f"transformers can't read the model: {first_line(error)}", got=str(folder)) from error
        return cls.from_model(model, shapes=shapes, precision=precision, device=place.name, **options)

    @classmethod
    def from_model(
        cls, model: Any, *, shapes: Mapping[str, Any] | None = None, precision: str = "fp32", device: Any = "auto",
        **options: Any,
    ) -> Any:  # fmt: skip
        """The same of a model in memory."""
        module = _wrapped(model, cls._names)
        wanted = dict(shapes) if shapes is not None else _shapes(model, module.taken)
        place = Device.of(device)
        built = place.backend.optimize_model(module, wanted, precision, **options)
        return cls(built, model.config, tuple(module.given), place.name)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Saves the engine and the configuration; `from_pretrained` opens them. Raises `FileError`."""
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.config.save_pretrained(folder)
            about = {"class": type(self).__name__, "outputs": list(self._outputs)}
            (Path(folder) / ABOUT).write_text(json.dumps(about))
        except OSError as error:
            raise FileError(f"the model can't be written: {error.strerror or error}", got=str(folder)) from error
        self.model.save(Path(folder) / ENGINE)

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """The outputs, in transformers' class for them.

        Raises `InvalidArgumentError` for inputs that it lacks, and for those that the engine does not take.
        """
        modeling = need("transformers.modeling_outputs", "neurenix.huggingface")
        given = {**dict(zip(self._taken, args, strict=False)), **inputs}
        self._check(given, len(args))
        results = self.model.run({name: self._input(name, given) for name in self._taken})
        made = getattr(modeling, self._output)(**dict(zip(self._outputs, results.values(), strict=True)))
        return made if given.get("return_dict", True) in (True, None) else made.to_tuple()

    __call__ = forward

    def _check(self, given: Mapping[str, Any], positional: int) -> None:
        # Tokenizers also give what a model of their kind does not take.
        known = {*self._taken, *_INPUTS, "return_dict"}
        asked = [name for name, one in given.items() if name not in known and one is not None and one is not False]
        if asked or positional > len(self._taken):
            raise InvalidArgumentError(
                "the engine does not take this",
                expected=", ".join(self._taken),
                got=", ".join(asked) or f"{positional} arguments by position",
                hint="transformers' own model takes it",
            )

    def _input(self, name: str, given: Mapping[str, Any]) -> Any:
        found = given.get(name)
        if found is not None:
            return found
        main = given.get(self.main_input_name)
        if main is None or name not in ("attention_mask", "token_type_ids"):
            raise InvalidArgumentError(
                "an input is missing", expected=", ".join(self._taken), got=", ".join(given), tensor=name
            )
        return main * 0 + (1 if name == "attention_mask" else 0)

    @property
    def device(self) -> Any:
        """Where arrays are best given, and results lie then."""
        return need("torch", "neurenix.huggingface").device(self._device)

    @property
    def dtype(self) -> Any:
        """The dtype of the outputs."""
        return getattr(need("torch", "neurenix.huggingface"), self.model.outputs[0].dtype.name)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Stays where it is: an engine is built for a device. Says so where that is another one."""
        wanted = args[0] if args else kwargs.get("device")
        if (
            wanted is not None
            and str(wanted).split(":")[0] != self._device.split(":")[0]
            and str(wanted)[:5] != "torch"
        ):
            LOG.warning(
                "the engine stays on %s: from_pretrained(..., device=%r) builds one for it", self._device, wanted
            )
        return self

    def eval(self) -> Any:
        """Itself."""
        return self

    def can_generate(self) -> bool:
        """False: encoders alone are engines."""
        return False


class NeurenixModelForFeatureExtraction(NeurenixModel):
    """An encoder: hidden states, and what it pools of them."""


class NeurenixModelForSequenceClassification(NeurenixModel):
    """Logits of classes for texts."""

    _auto, _output, _names = "AutoModelForSequenceClassification", "SequenceClassifierOutput", ("logits",)


class NeurenixModelForTokenClassification(NeurenixModel):
    """Logits of classes for each token."""

    _auto, _output, _names = "AutoModelForTokenClassification", "TokenClassifierOutput", ("logits",)


class NeurenixModelForQuestionAnswering(NeurenixModel):
    """Logits of where an answer begins and ends."""

    _auto, _output = "AutoModelForQuestionAnswering", "QuestionAnsweringModelOutput"
    _names = ("start_logits", "end_logits")


class NeurenixModelForMaskedLM(NeurenixModel):
    """Logits of words for each token."""

    _auto, _output, _names = "AutoModelForMaskedLM", "MaskedLMOutput", ("logits",)


class NeurenixModelForImageClassification(NeurenixModel):
    """Logits of classes for pictures."""

    _auto, _output, _names = "AutoModelForImageClassification", "ImageClassifierOutput", ("logits",)


def _wrapped(model: Any, names: tuple[str, ...]) -> Any:
    """A module that takes what an engine takes, and gives those of the outputs that the model has, as a tuple."""
    torch = need("torch", "neurenix.huggingface")
    known = inspect.signature(model.forward).parameters
    taken = [name for name in _INPUTS if name in known]
    if "pixel_values" in taken and model.main_input_name == "pixel_values":
        taken = ["pixel_values"]
    elif getattr(model.config, "type_vocab_size", 0) < 2:
        taken = [name for name in taken if name in ("input_ids", "attention_mask")]
    if model.main_input_name not in taken:
        raise InvalidArgumentError(
            "this model takes other inputs than text or pictures",
            expected=", ".join(_INPUTS),
            got=model.main_input_name,
        )
    model.eval()
    example = {name: torch.zeros(shape.opt, dtype=_dtype(torch, name)) for name, shape in _shapes(model, taken).items()}
    with torch.no_grad():
        found = model(**example, return_dict=True)
    given = [name for name in names if found.get(name) is not None]

    class Engine(torch.nn.Module):  # type: ignore[misc,name-defined]
        """The model, by position."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.taken, self.given = taken, given

        def forward(self, *args: Any) -> Any:
            """Its outputs."""
            results = self.model(**dict(zip(taken, args, strict=True)), return_dict=True)
            return tuple(results[name] for name in given)

    made = Engine()
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in taken]
    made.forward.__func__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *parameters]
    )
    return made


def _dtype(torch: Any, name: str) -> Any:
    return torch.float32 if name == "pixel_values" else torch.int64


def _shapes(model: Any, taken: list[str]) -> dict[str, Shape]:
    config = model.config
    if taken == ["pixel_values"]:
        size = getattr(config, "image_size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        rest = (getattr(config, "num_channels", 3), height, width)
        shape = Shape((1, *rest), (1, *rest), (MOST_BATCH, *rest))
    else:
        longest = int(getattr(config, "max_position_embeddings", 0) or 512) - _positions_left_out(model)
        shape = Shape((1, 1), (1, min(USUAL_LENGTH, longest)), (MOST_BATCH, longest))
    return dict.fromkeys(taken, shape)


def _positions_left_out(model: Any) -> int:
    """How many positions no token has: RoBERTa's kind begins behind the one that stands for padding."""
    found = (one for name, one in model.named_modules() if name.endswith("position_embeddings"))
    padding = [getattr(one, "padding_idx", None) for one in found]
    return max((place + 1 for place in padding if place is not None), default=0)


def _register() -> None:
    """Makes pipelines take these classes for models that they know."""
    transformers = need("transformers", "neurenix.huggingface")
    for kind in NeurenixModel.__subclasses__():
        getattr(transformers, kind._auto)._model_mapping._extra_content.setdefault(kind, kind)


_register()
