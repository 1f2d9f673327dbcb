"""Packages as somebody with bad intentions writes them: any manifest, any members, and a seal that is right."""

from __future__ import annotations

from pathlib import Path

from partita.accelerators.runtime.package.container import Package, writing


def forge(source: Path, target: Path, change=lambda manifest: None, members=None) -> Path:
    """A copy of the package whose manifest was changed, and some of whose members are others."""
    package, given = Package(source, None), members or {}
    manifest = dict(package.manifest)
    data = {name: bytes(package.member(name)) for name in manifest.pop("members") if name != "manifest.json"}
    manifest.pop("format")
    change(manifest)
    with writing(target) as result:
        for name, content in {**data, **given}.items():
            result.add(name, content)
        result.finish(manifest, None)
    return target
