"""The wheel `onnxruntime-ep-partita`, for Partita's version: the libraries are written or compiled now, for each processor."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

import partita
from partita.onnxruntime_plugin.library import PROCESSORS
from partita.onnxruntime_plugin.prebuilt import write

HERE = Path(__file__).resolve().parent


class Build(build_py):
    """The Python file, and the libraries beside it."""

    def run(self) -> None:
        super().run()
        folder = Path(self.build_lib, "onnxruntime_ep_partita")
        for processor in PROCESSORS:
            for path in write(folder, processor):
                self.announce(f"wrote {path}", 2)


setup(
    name="onnxruntime-ep-partita",
    version=partita.__version__,
    description="Partita's devices as an execution provider of onnxruntime",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=["onnxruntime_ep_partita"],
    install_requires=[f"partita[onnxruntime] =={partita.__version__}"],
    cmdclass={"build_py": Build},
)
