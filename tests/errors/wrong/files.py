"""Files: engines, models, reports."""

from __future__ import annotations

import zipfile
from pathlib import Path

from fuzz.engine_file import File
from tests.errors.wrong.common import SHAPES, backend, case, model


@case
def model_file_missing(folder: Path) -> None:
    backend().optimize_model(folder / "missing.onnx", SHAPES)


@case
def model_file_of_another_kind(folder: Path) -> None:
    (folder / "model.onnx").write_text("not a model")
    backend().optimize_model(folder / "model.onnx", SHAPES)


@case
def model_file_of_torch(folder: Path) -> None:
    (folder / "model.pt").write_bytes(b"PK\3\4" + bytes(100))
    backend().optimize_model(folder / "model.pt", SHAPES)


@case
def model_file_of_torchscript(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("model/constants.pkl", b"")
    backend().optimize_model(folder / "model.pt", SHAPES)


@case
def model_file_of_keras(folder: Path) -> None:
    (folder / "model.keras").touch()
    backend().optimize_model(folder / "model.keras", SHAPES)


@case
def model_file_of_keras_2(folder: Path) -> None:
    (folder / "model.h5").touch()
    backend().optimize_model(folder / "model.h5", SHAPES)


@case
def model_file_of_tensorflow_missing(folder: Path) -> None:
    backend().optimize_model(folder / "model.pb", SHAPES)


@case
def model_file_of_torch_missing(folder: Path) -> None:
    backend().optimize_model(folder / "missing.pt", SHAPES)


@case
def model_folder_of_nobody(folder: Path) -> None:
    backend().optimize_model(folder, SHAPES)


@case
def engine_file_under_the_ending_of_a_model(folder: Path) -> None:
    model().save(folder / "model.onnx")


@case
def engine_file_missing(folder: Path) -> None:
    backend().load(folder / "missing.engine")


@case
def engine_file_of_another_kind(folder: Path) -> None:
    (folder / "model.engine").write_bytes(b"PK\3\4" + bytes(100))
    backend().load(folder / "model.engine")


@case
def engine_file_that_is_a_folder(folder: Path) -> None:
    backend().load(folder)


@case
def engine_file_as_a_model(folder: Path) -> None:
    model().save(folder / "model.engine")
    backend().optimize_model(folder / "model.engine", SHAPES)


@case
def engine_file_cut_off(folder: Path) -> None:
    path = folder / "model.engine"
    model().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    backend().load(path)


@case
def engine_file_of_the_future(folder: Path) -> None:
    path = folder / "model.engine"
    model().save(path)
    file = File.read(path.read_bytes())
    file.version, file.header["producer"] = 77, "neurenix 9.1.0"
    path.write_bytes(file.written())
    backend().load(path)


@case
def engine_file_into_a_missing_folder(folder: Path) -> None:
    model().save(folder / "missing" / "model.engine")


@case
def engine_file_into_a_folder(folder: Path) -> None:
    model().save(folder)


@case
def report_of_an_unknown_kind(folder: Path) -> None:
    model().report().save(folder / "report.pdf")


@case
def report_into_a_missing_folder(folder: Path) -> None:
    model().report().save(folder / "missing" / "report.html")
