"""Partita's devices as an execution provider of onnxruntime."""

from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]


def get_library_path() -> str:
    """The path for `onnxruntime.register_execution_provider_library`, valid in this process."""
    from partita.onnxruntime_plugin.prebuilt import plugin

    return plugin(Path(__file__).parent)


def get_ep_name() -> str:
    """The provider's name."""
    return "PartitaExecutionProvider"


def get_ep_names() -> list[str]:
    """The names of all providers of the library."""
    return [get_ep_name()]
