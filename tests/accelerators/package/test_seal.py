"""Every byte of a package is sealed: altered, cut or added to, it is refused with one error; a key signs it."""

from __future__ import annotations

import random

import pytest

import partita as pt
from partita.accelerators.runtime.package.container import _LENGTH as SEAL
from partita.accelerators.runtime.package.container import Package, PackageError
from tests.graphs.networks import small_net


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("sealed") / "net.partita"
    pt.compile(small_net(), "reference").export(path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    path = tmp_path / "net.partita"

    def check(data: bytes, match: str = ".", **options):
        path.write_bytes(data)
        with pytest.raises(PackageError, match=match) as caught:
            pt.import_model(path, **options)
        assert str(path) in str(caught.value)

    return check


def offsets(size: int) -> list[int]:
    """Ends, headers, the whole seal, and a sample of the rest."""
    some = random.Random(0).sample(range(size), min(size, 400))
    return sorted({*range(80), *range(size - SEAL - 60, size), *some})


def test_each_altered_byte_is_noticed(data, refused):
    for at in offsets(len(data)):
        for change in (0x01, 0x20, 0x80):
            refused(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :], "altered or damaged|not a package")


def test_each_cut_is_noticed(data, refused):
    for at in offsets(len(data)):
        refused(data[:at], "not a package of Partita's, or it was cut short|it is empty")
        refused(data[:at] + data[at + 1 :], "altered or damaged|not a package")


def test_ranges_that_are_zeroed_doubled_or_swapped_are_noticed(data, refused):
    half = len(data) // 2
    for start in range(0, len(data) - 64, max(1, len(data) // 60)):
        refused(data[:start] + bytes(64) + data[start + 64 :] if data[start : start + 64] != bytes(64) else b"x")
        refused(data[: start + 64] + data[start:])
    refused(data + b"\0", "not a package")
    refused(b"\0" + data, "altered")
    refused(data[half:] + data[:half], "not a package")
    refused(data[half:], "altered")
    refused(data + data[-SEAL:], "altered")


def test_a_missing_file_and_another_file_are_named(refused, tmp_path):
    with pytest.raises(PackageError, match="the package cannot be read: No such file"):
        pt.import_model(tmp_path / "none.partita")
    with pytest.raises(PackageError, match="cannot be read"):
        pt.import_model(tmp_path)
    refused(b"PK\x05\x06" + bytes(18), "not a package of Partita's")


def test_a_signature_needs_the_key(tmp_path, refused):
    path = tmp_path / "signed.partita"
    model = pt.compile(small_net(), "reference")
    model.export(path, key=b"secret")
    assert pt.import_model(path, key=b"secret").properties.subgraphs == 1
    assert pt.import_model(path).properties.subgraphs == 1
    signed = path.read_bytes()
    for other in (b"other", b"secret\0", b"secre", b"\0" * 64):
        refused(signed, "signed with another key", key=other)
    for at in range(len(signed) - SEAL, len(signed)):
        refused(signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :])
    model.export(path)
    refused(path.read_bytes(), "the package is not signed", key=b"secret")
    path.write_bytes(signed)
    for mode, now in ((0o600, b"altered"), (0o666, signed[:7])):
        path.chmod(mode)
        package = Package(path, b"secret")
        with open(path, "r+b") as file:  # Only its owner could do this to the first.
            file.write(b"altered")
        assert bytes(package._data[:7]) == now
        path.write_bytes(signed)
    with pytest.raises(PackageError, match="a key is bytes, not str"):
        pt.import_model(path, key="secret")
    for way in (model.export, pt.import_model):
        with pytest.raises(PackageError, match="the key is empty: anybody could sign with it"):
            way(path, key=b"")


def test_somebody_who_can_make_seals_cannot_make_it_crash(data, tmp_path, refused):
    """Forged manifests with right checksums: one error, no crash, nothing loaded."""
    import json

    from partita.accelerators.runtime.package.container import MANIFEST, writing

    path = tmp_path / "whole.partita"
    path.write_bytes(data)
    package = Package(path, None)
    members = {name: bytes(package.member(name)) for name in package.manifest["members"] if name != MANIFEST}
    good = {key: value for key, value in package.manifest.items() if key not in ("members", "format")}

    def forged(**changes):
        with writing(path) as result:
            for name, content in {**members, **changes.pop("members", {})}.items():
                result.add(name, content)
            result.finish({**good, **changes}, None)
        return path.read_bytes()

    row = good["units"][0]
    unit_changes = [
        {"device": 3}, {"device": "nope"}, {"body": "../../etc/passwd"}, {"body": None}, {"code": "weights"},
        {"config": {"CACHE_DIR": "/tmp"}, "body": 1}, {"name": None, "device": None}, {"ops": 1, "identity": 2, "config": 3},
    ]
    for change in unit_changes:
        refused(forged(units=[{**row, **change}]))
    for change in ({"units": 3}, {"units": []}, {"units": [None]}, {"settings": {"a": 1}}, {"settings": None}):
        refused(forged(**change))
    refused(forged(members={"plan.onnx": b"junk"}))
    refused(forged(members={"bodies/0.onnx": b""}))
    refused(forged(members={"weights": b"short"}))
    refused(forged(members={"report.json": b"["}))
    refused(forged(members={"report.json": b"[1]"}))
    assert json.loads(json.dumps(good)) == good
    path.write_bytes(forged())
    assert pt.import_model(path).properties.subgraphs == 1
