"""What is published: the source distribution is whole, the wheel made of it works, README's links hold anywhere."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import partita as pt
from tests.house import ROOT, STOREYS
from tests.test_house import tracked

LINKS = [path for path in (ROOT / "partita").iterdir() if path.is_symlink()]
"""The folders beside `partita/` that are parts of it."""

ADDRESS = "https://forge.example/someone/partita"

BACKEND = "import sys; from setuptools import build_meta; print(getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, target: Path, **environment: str) -> Path:
    """Build as a frontend does, in the folder of the sources."""
    plain = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PARTITA_ADDRESS")}
    command = [sys.executable, "-c", BACKEND, kind, str(target)]
    done = subprocess.run(command, cwd=source, env={**plain, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return target / done.stdout.splitlines()[-1]


def copied(folder: Path) -> Path:
    """The files under version control, alone."""
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for link in LINKS:
        (folder / "partita" / link.name).symlink_to(link.readlink())
    return folder


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are a distribution already")
    folder = tmp_path_factory.mktemp("source")
    return build("sdist", copied(folder), tmp_path_factory.mktemp("sdist"), PARTITA_ADDRESS=f"{ADDRESS}.git")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked where pip would put it; made from the source distribution, which no environment helps."""
    unpacked, target = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("site")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    built = build("wheel", next(unpacked.iterdir()), tmp_path_factory.mktemp("wheel"))
    with zipfile.ZipFile(built) as archive:
        archive.extractall(target)
    return target


def test_a_zip_file_of_the_repository_installs(tmp_path: Path) -> None:
    """As a forge makes one, and pip unpacks it: links become files that hold their targets."""
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are a distribution already")
    folder = copied(tmp_path / "source")
    for link in LINKS:
        (folder / "partita" / link.name).unlink()
        (folder / "partita" / link.name).write_text(str(link.readlink()))
    (tmp_path / "wheel").mkdir()
    with zipfile.ZipFile(build("wheel", folder, tmp_path / "wheel")) as archive:
        assert {f"partita/{link.name}/__init__.py" for link in LINKS} < set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    return email.message_from_string(next(wheel.glob("*.dist-info/METADATA")).read_text("utf-8"))


def test_the_source_distribution_holds_every_file(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in (item.name for item in archive if item.isfile())}
        links = {Path(item.name).name: item.linkname for item in archive if item.issym()}
    generated = {name for name in files if name == "PKG-INFO" or ".egg-info/" in name}
    assert files - generated == {path.relative_to(ROOT).as_posix() for path in tracked()}
    assert links == {link.name: str(link.readlink()) for link in LINKS}


def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    code = (
        "import partita as pt; x = pt.variable('x', 'float32', (2,)); g = pt.Graph([pt.op('Relu', x)]);"
        "print(pt.__file__); print(pt.compile(g, 'reference')([-1, 2])[0].tolist())"
    )
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(wheel / "partita" / "__init__.py"), "[0.0, 2.0]"]


def test_the_wheel_has_types_and_data(wheel: Path) -> None:
    assert {path.name for path in wheel.iterdir() if path.suffix != ".dist-info"} == {"partita"}
    for package in ("", *STOREYS[1:]):
        assert (wheel / "partita" / package / "py.typed").is_file()
    assert (wheel / "partita/accelerators/tvm/run/pool.c").is_file()
    assert list((wheel / "partita/page/built").iterdir())


def test_the_urls_come_from_the_address(metadata: Message) -> None:
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls["Source"] == ADDRESS
    assert urls["Documentation"] == f"{ADDRESS}/blob/HEAD/docs/index.md"
    assert {"Changes", "Issues"} <= urls.keys()


def test_readme_on_the_package_index_has_absolute_links(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", text)
    assert len(links) > 20
    assert [link for pair in links for link in pair if link and not link.startswith("https://")] == []
    assert f"[tutorial]({ADDRESS}/blob/HEAD/docs/tutorial.md)" in text
    assert f'src="{ADDRESS}/raw/HEAD/docs/pictures/googlenet.svg"' in text


def of_setup(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of setup.py, without what it does when it is run."""
    monkeypatch.delenv("PARTITA_ADDRESS", raising=False)
    import runpy

    return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


def test_without_an_address_no_link_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    text = of_setup(monkeypatch)["readme"](None)
    assert re.findall(r"\]\((?!https://)[^)]+\)|<img", text) == []
    assert "- Installation, tutorial, and notebooks" in text


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@forge.example:someone/partita.git", ADDRESS),
        ("ssh://git@forge.example/someone/partita.git", ADDRESS),
        ("https://name:secret@forge.example/someone/partita", ADDRESS),
        ("../elsewhere", None),
    ],
)
def test_the_address_of_a_clone(remote: str, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = of_setup(monkeypatch)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", remote], check=True)
    functions["address"].__globals__["ROOT"] = tmp_path
    assert functions["address"]() == address


def test_readme_links_to_files_that_are_there() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)|src=\"([^\"]+)\"", text)
    assert [link for pair in links for link in pair if link and not (ROOT / link).exists()] == []


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {pt.__version__}\n" in text
    assert "\nlicense: Apache-2.0\n" in text
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load(text)
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_the_workflow_runs_the_commands_of_readme_on_every_python() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    job = workflow["jobs"]["readme"]
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    assert job["strategy"]["matrix"]["python"] == re.findall(r"Python :: (3\.\d+)", setup)
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == re.findall(r"^\$ (make \w+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)[: len(commands)]
    assert len(commands) == 2
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True]["push"]["branches"] == ["main"], "YAML reads the word `on` as true"
