"""The part of the metadata that depends on where the sources are published: URLs, and the links of README.md.

The package index shows README.md away from the other files, so that its relative links have to become absolute ones there.
The address of the repository is PARTITA_ADDRESS, else what the source distribution states, else git's remote `origin`.
Where there is no address there are no URLs, and links to files become plain words. All other metadata stands in setup.cfg.

A source distribution keeps the links in `partita/` to the folders beside it, in place of a second copy of what they hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent

PAGES = {
    "Documentation": "/blob/HEAD/docs/index.md",
    "Changes": "/blob/HEAD/CHANGELOG.md",
    "Source": "",
    "Issues": "/issues",
}
"""The project's pages, by the names that the package index shows."""

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")
"""A Markdown link to a file of the repository."""

PICTURE = re.compile(r'<img ([^>]*)src="(?!https?://)([^"]+)"([^>]*)>')
"""A picture that is a file of the repository."""


def address() -> str | None:
    """The address of the repository in a browser, without a slash at its end."""
    given = os.environ.get("PARTITA_ADDRESS") or _stated() or _remote()
    return given.rstrip("/").removesuffix(".git") if given else None


def _stated() -> str | None:
    """The address that the metadata of an unpacked source distribution states."""
    metadata = ROOT / "PKG-INFO"
    if not metadata.is_file():
        return None
    stated = re.search(r"^Project-URL: Source, (\S+)$", metadata.read_text("utf-8"), re.MULTILINE)
    return stated and stated[1]


def _remote() -> str | None:
    """The remote `origin`, if it is one that a browser can show; a password in it is left out."""
    if not (ROOT / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    remote = re.fullmatch(r"(?:https?://(?:[^@/]*@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+)", asked.stdout.strip())
    return remote and f"https://{remote[1]}/{remote[2]}"


def readme(base: str | None) -> str:
    """README.md as it can be read anywhere."""
    text = (ROOT / "README.md").read_text("utf-8")
    if base is None:
        return PICTURE.sub("", LINK.sub(r"\1", text))
    return PICTURE.sub(rf'<img \1src="{base}/raw/HEAD/\2"\3>', LINK.sub(rf"[\1]({base}/blob/HEAD/\2)", text))


class SourceDistribution(sdist):
    """The repository's files, and its links."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        for link in [path for path in (ROOT / "partita").iterdir() if path.is_symlink()]:
            copy = Path(base_dir, "partita", link.name)
            shutil.rmtree(copy)
            copy.symlink_to(link.readlink())


def mend_links() -> None:
    """Makes links of the files that ZIP readers which know no links, pip's too, leave in their place."""
    for name in ("accelerators", "graph", "partition", "passes"):
        link = ROOT / "partita" / name
        if link.is_file():
            link.unlink()
            link.symlink_to(f"../{name}")


if __name__ == "__main__":
    mend_links()
    home = address()
    setup(
        url=home,
        project_urls={name: home + path for name, path in PAGES.items()} if home else {},
        long_description=readme(home),
        long_description_content_type="text/markdown",
        cmdclass={"sdist": SourceDistribution},
    )
