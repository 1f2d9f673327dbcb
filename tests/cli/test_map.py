"""`partita map`: a model over a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from tests.cli.conftest import Command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "inputs"
    target.mkdir()
    for number in range(5):
        array = np.random.default_rng(number).standard_normal((1, 3, 8, 8), np.float32)
        if number % 2:
            np.save(target / f"{number}.npy", array)
        else:
            np.savez(target / f"{number}.npz", x=array)
    (target / "notes.txt").write_text("no input")
    return target


def test_each_file_has_a_result_of_its_own(partita: Command, model: str, folder: Path) -> None:
    done = partita(f"map {model} --devices reference --input {folder} --output outputs --workers 2")
    assert done.status == 0 and "5 files in" in done.out
    compiled = pt.compile(pt.load(model), "reference")
    for number in range(5):
        x = np.random.default_rng(number).standard_normal((1, 3, 8, 8), np.float32)
        assert np.load(f"outputs/{number}.npz")["y"].tobytes() == compiled(x)[0].tobytes()


def test_files_are_the_same_with_any_number_of_workers(partita: Command, model: str, folder: Path) -> None:
    for workers in (1, 2):
        partita(f"map {model} --devices reference --input {folder} --output {workers} --workers {workers}")
    assert all(path.read_bytes() == (Path("2") / path.name).read_bytes() for path in Path("1").iterdir())


def test_a_signature_is_verified_by_every_verb_that_takes_a_compiled_model(partita: Command, model: str, folder: Path) -> None:
    Path("key").write_bytes(b"secret")
    Path("other").write_bytes(b"guessed")
    assert partita(f"compile {model} --devices reference -o net.partita --key key").status == 0
    for words in (
        f"map net.partita --input {folder} --output outputs", "run net.partita --profile 0",
        "inspect net.partita", "explain net.partita conv1", "compare net.partita",
        f"compare net.partita {model}",
    ):
        assert partita(f"{words} --key key").status == 0, words
        assert "the package was signed with another key" in partita(f"{words} --key other").err, words
        unsigned = partita(f"{words.replace('net.partita', model, 1)} --key key")
        assert unsigned.status != 0 and "--key goes with a compiled model" in unsigned.err, words


def test_two_files_of_one_name_are_an_error(partita: Command, model: str, folder: Path) -> None:
    np.save(folder / "0.npy", np.zeros((1, 3, 8, 8), np.float32))
    done = partita(f"map {model} --devices reference --input {folder} --output outputs")
    assert done.status != 0 and "0.npy and 0.npz would have one result, 0.npz" in done.err


def test_a_folder_without_inputs_is_an_error(partita: Command, model: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "the folder holds no input file" in partita(f"map {model} --input empty --output outputs").err
    assert "there is no such folder" in partita(f"map {model} --input nowhere --output outputs").err


def test_results_do_not_overwrite_the_inputs(partita: Command, model: str, folder: Path) -> None:
    done = partita(f"map {model} --devices reference --input {folder} --output {folder}/")
    assert "results would overwrite the inputs" in done.err


def test_a_parquet_file_without_pyarrow_is_an_error_that_names_the_extra(
    partita: Command, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("partita.cli.map.find_spec", lambda name: None)
    done = partita(f"map {model} --input {tmp_path / 'rows.parquet'} --output outputs")
    assert done.status != 0 and "partita[parquet]" in done.err


def test_rows_of_a_parquet_file_are_inputs(partita: Command, model: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrays = [np.random.default_rng(number).standard_normal((1, 3, 8, 8), np.float32) for number in range(3)]
    flat = pyarrow.array([array.reshape(-1).tolist() for array in arrays], pyarrow.list_(pyarrow.float32()))
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"name": ["a", "b", "c"], "x": flat}), path)
    done = partita(f"map {model} --devices reference --input {path} --output outputs --workers 2")
    assert done.status == 0 and "3 rows in" in done.out
    compiled = pt.compile(pt.load(model), "reference")
    for number, array in enumerate(arrays):
        assert np.load(f"outputs/{number:06}.npz")["y"].tobytes() == compiled(array)[0].tobytes()
    parquet.write_table(pyarrow.table({"z": [1]}), path)
    done = partita(f"map {model} --devices reference --input {path} --output outputs")
    assert done.status != 0 and "it has no column 'x'; its columns are z" in done.err
    twins = pyarrow.Table.from_arrays([pyarrow.array([1.0]), pyarrow.array([2.0])], names=["x", "x"])
    parquet.write_table(twins, path)
    done = partita(f"map {model} --devices reference --input {path} --output outputs")
    assert done.status != 0 and "it has 2 columns 'x'; an input takes one" in done.err
    parquet.write_table(pyarrow.table({"x": [[1.0, None]]}), path)
    done = partita(f"map {model} --devices reference --input {path} --output outputs")
    assert done.status != 0 and "row 0, column 'x': it does not hold numbers, or one is missing" in done.err
    path.write_bytes(b"PAR1 and no more")
    done = partita(f"map {model} --devices reference --input {path} --output outputs")
    assert done.status != 0 and "it cannot be read as a Parquet file" in done.err
