"""Whatever the page bundles is under a licence that allows it, and is named with its text."""

from __future__ import annotations

import json

from tests import licences


def test_what_is_bundled_is_named_with_its_licence() -> None:
    assert licences.locked(), "the lock file names nothing"
    assert list(licences.wrong()) == []


def test_a_new_package_and_an_unknown_licence_are_noticed(tmp_path, monkeypatch) -> None:
    lock = json.loads((licences.WEB / "package-lock.json").read_text("utf-8"))
    lock["packages"]["node_modules/left-pad"] = {"version": "1.3.0", "license": "MIT"}
    lock["packages"]["node_modules/odd"] = {"version": "1.0.0", "license": "GPL-3.0-only"}
    lock["packages"]["node_modules/tool"] = {"version": "1.0.0", "license": "GPL-3.0-only", "dev": True}
    del lock["packages"]["node_modules/@dagrejs/graphlib"]
    (tmp_path / "package-lock.json").write_text(json.dumps(lock))
    monkeypatch.setattr(licences, "WEB", tmp_path)
    result = "\n".join(licences.wrong())
    assert "left-pad 1.3.0 (MIT) is bundled, and licences.txt does not name it: make page" in result
    assert "odd 1.0.0 has the licence 'GPL-3.0-only', which is none of MIT" in result
    assert "licences.txt names @dagrejs/graphlib 4.0.6, which is not bundled" in result
    assert "tool" not in result.replace("docs/report.md", "")
