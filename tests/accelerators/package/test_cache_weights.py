"""The weights of the cache: each array is one file, written when it is packed, and shared in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import partita as pt
from partita.accelerators.arrays import sharing
from partita.accelerators.arrays.layout import aligned_block
from partita.accelerators.arrays.sharing import array_digest, held_once
from partita.accelerators.process import background
from partita.accelerators.process.atomic import PIECE, write_pieces
from partita.accelerators.process.background import short_turns
from partita.accelerators.store import store
from partita.accelerators.store.folder import Damaged
from partita.accelerators.store.store import Store, read_weights, write_weights
from tests.close import is_close


def test_each_large_array_is_on_disk_once_and_in_memory_once(tmp_path):
    store, big = Store(tmp_path / "here"), np.random.default_rng(0).standard_normal(20_000)
    store.write("ab" * 32, {"names": []}, b"code", [big, np.arange(3), np.ones(5, np.int8)])
    store.write("cd" * 32, {"names": []}, b"other", [np.arange(4), big.copy()])
    assert len(list((tmp_path / "here" / "weights").iterdir())) == 3, "the array, and the small ones of each"
    one, two = store.read("ab" * 32).weights, store.read("cd" * 32).weights
    assert one[0] is two[1] and one[0].ctypes.data % 64 == 0
    for array, wanted in zip((*one, *two), (big, np.arange(3), np.ones(5, np.int8), np.arange(4), big), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_weights_are_read_anew_only_where_something_can_have_happened_to_them(tmp_path: Path) -> None:
    array = np.arange(store.LARGE, dtype=np.float32)
    rows = store.write_weights(tmp_path, [array])
    (read,) = store.read_weights(tmp_path, rows)
    assert np.array_equal(read, array)
    del read
    file = tmp_path / rows[0][0]
    changed = bytearray(file.read_bytes())
    changed[5] ^= 1
    file.write_bytes(changed)
    with pytest.raises(Damaged, match="the checksum of its weights is wrong"):
        store.read_weights(tmp_path, rows)


def test_a_weight_that_was_just_written_is_not_read_to_check_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file was mapped as it was packed, which noted the time, so that it counted as another when its entry was read."""
    monkeypatch.setattr(store, "used_now", lambda path: os.utime(path, (1, 1)))
    monkeypatch.setattr(store.hashlib, "file_digest", lambda *given: pytest.fail("it is read"))
    array = np.arange(store.LARGE, dtype=np.float32)
    digest = array_digest(array)
    assert store.keep_weight(tmp_path, array, digest) is not None  # and is freed, with the compiled subgraph
    (read,) = store.read_weights(tmp_path, [(digest, 0, "float32", array.shape)])
    assert np.array_equal(read, array)


def test_weights_are_read_by_a_single_thread_behind_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six threads of low priority got as much of two cores as a call did, which took half as long again meanwhile."""
    monkeypatch.setattr(background, "usable_cores", lambda: 3)
    arrays = [np.full(store.LARGE, i, np.float32) for i in range(12)]
    readers, meet = set[int](), threading.Barrier(3)

    def noted(path: Path, mapped: Callable[[Path], np.ndarray] = store._mapped) -> np.ndarray:
        readers.add(threading.get_ident())
        if not short_turns.are_on:
            meet.wait(30)  # which takes three at a time
        return mapped(path)

    monkeypatch.setattr(store, "_mapped", noted)
    rows = write_weights(tmp_path, arrays)
    assert [int(array[0]) for array in read_weights(tmp_path, rows)] == list(range(12))
    assert len(readers) == 3
    readers.clear()
    read = background.behind(lambda: read_weights(tmp_path, rows))
    assert [int(array[0]) for array in read] == list(range(12))
    assert len(readers) == 1


def test_a_digest_goes_with_its_array() -> None:
    array = held_once(np.arange(64, dtype=np.float32))
    assert array_digest(array) == array_digest(array.copy())
    others = [held_once(np.full(64, i, np.float32)) for i in range(50)]
    wanted = [array_digest(other.copy()) for other in others]
    assert [array_digest(other) for other in others] == wanted
    del others, array
    fresh = [np.full(64, -i, np.float32) for i in range(50)]
    assert [array_digest(one) for one in fresh] == [array_digest(one.copy()) for one in fresh]


def test_fixed_memory_is_read_for_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, writable = (np.arange(64, dtype=np.float32).reshape(8, 8).copy() for _ in range(2))
    fixed.flags.writeable = False
    wanted = [array_digest(array) for array in (fixed, fixed[:4], fixed.T)]
    with sharing.each_read_once():
        assert sharing.array_digests([fixed, fixed[:4], fixed.T, writable]) == [*wanted, wanted[0]]
        writable[0] = 1
        assert sharing.array_digests([writable]) == [array_digest(writable)] != [wanted[0]]
        monkeypatch.setattr(sharing, "array_digest", lambda array: pytest.fail("it is read"))
        assert sharing.array_digests([fixed.reshape(-1), fixed[:4].reshape(2, 16)]) == wanted[:2]
    with pytest.raises(pytest.fail.Exception, match="it is read"):
        sharing.array_digests([fixed])


def test_weights_lie_in_their_files_as_soon_as_they_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them were in memory, until the last one was packed and the entry was written."""
    written = []
    real = Store.write

    def write(self: Store, key: str, meta: dict[str, object], code: bytes, weights: tuple[np.ndarray, ...]) -> None:
        written.extend((weight.nbytes, (tmp_path / "weights" / array_digest(weight)).exists()) for weight in weights)
        assert all(type(memory_of(weight)) is mmap for weight in weights)
        real(self, key, meta, code, weights)

    monkeypatch.setattr(Store, "write", write)
    matrix = np.random.default_rng(7).standard_normal((256, 256)).astype("f")
    graph = pt.Graph([pt.op("MatMul", pt.variable("x", "float32", (4, 256)), pt.constant(matrix))])
    result = pt.compile(graph, "cpu", {"CACHE_DIR": str(tmp_path)})(np.ones((4, 256), "f"))[0]
    ((size, is_there),) = written
    assert size >= matrix.nbytes and is_there, "columns are added where panels are wider"
    assert is_close(result, matrix.sum(0), atol=1e-3)


def memory_of(array: np.ndarray) -> object:
    """What the array is a view of in the end."""
    memory: object = array
    while isinstance(memory, np.ndarray) and memory.base is not None:
        memory = memory.base
    return memory


def test_a_weight_that_cannot_be_written_stays_in_memory(tmp_path: Path) -> None:
    large, small = np.zeros(store.LARGE, np.uint8), np.zeros(store.LARGE - 1, np.uint8)
    kept = store.keep_weight(tmp_path, large, array_digest(large))
    assert kept is not None and np.array_equal(kept, large)
    assert store.keep_weight(tmp_path, small, array_digest(small)) is None
    assert store.keep_weight(tmp_path / "absent", large, array_digest(large)) is None
    (tmp_path / array_digest(large)).write_bytes(bytes(store.LARGE - 1) + b"x")
    del kept
    assert store.keep_weight(tmp_path, large, array_digest(large)) is None, "the file has other numbers"


def test_a_file_that_took_the_place_of_a_weight_is_looked_at(tmp_path: Path) -> None:
    """It counted as written by this process, where the weight was in memory still."""
    array = np.zeros(store.LARGE, np.uint8)
    digest = array_digest(array)
    first = store.keep_weight(tmp_path, array, digest)
    (row,) = write_weights(tmp_path, [array])
    (read,) = read_weights(tmp_path, [row])
    (tmp_path / "other").write_bytes(bytes(store.LARGE - 1) + b"x")
    (tmp_path / "other").replace(tmp_path / digest)
    again = store.keep_weight(tmp_path, array, digest)
    assert again is not None and np.array_equal(again, array)
    del first, read, again
    with pytest.raises(Damaged, match="the checksum of its weights is wrong"):
        read_weights(tmp_path, [row])


def test_what_a_user_writes_to_is_held_by_nobody_else(tmp_path: Path) -> None:
    """An aligned array was taken as it is: another model of equal weights, and the cache, then had what came to stand in it."""
    positions = pt.variable("positions", "int64", (3,))

    def rows(table: np.ndarray) -> list[float]:
        graph = pt.Graph([pt.op("Gather", pt.constant(table), positions)], [positions])
        result: np.ndarray = pt.compile(graph, "cpu", config={"CACHE_DIR": tmp_path})(np.array([0, 5, 7]))[0]
        return result[:, 0].tolist()

    table = aligned_block(512 * 300 * 4, 64).view(np.float32).reshape(512, 300)[:]
    table[...] = np.arange(512, dtype=np.float32)[:, None]
    first = table.copy()
    assert rows(table) == [0, 5, 7]
    table += 1
    assert rows(first) == [0, 5, 7]
    assert rows(table) == [1, 6, 8]
    assert rows(first) == [0, 5, 7]


def test_large_files_are_written_in_pieces_and_come_back(tmp_path: Path) -> None:
    numbers = np.arange(PIECE, dtype="float64")
    rows = write_weights(tmp_path, [numbers, numbers[:3]])
    for given, array in zip((numbers, numbers[:3]), read_weights(tmp_path, rows), strict=True):
        np.testing.assert_array_equal(array, given)
    sizes: list[int] = []
    write_pieces(SimpleNamespace(write=lambda data: sizes.append(len(data))), bytes(2 * PIECE + 5))  # type: ignore[arg-type]
    assert sizes == [PIECE, PIECE, 5]
