"""The functions that users call first: `load`, `compile`, `import_model`, `to_device`.

With START=now, `compile` gives an unchanged file to onnxruntime, if the result is the same, before most of Partita is even
imported. Therefore each function imports its implementation itself."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Never

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.cache_words import OFF, ON
from partita.accelerators.process.exit_barrier import at_a_device, main_has_ended
from partita.graph.errors import check_path, unexpected

if TYPE_CHECKING:
    import onnx

    from partita.accelerators.arrays.on_device import DeviceArray
    from partita.accelerators.placement.locked import LockedPlan
    from partita.accelerators.placement.placement import Placement
    from partita.accelerators.placement.rules import Forbid, Pin
    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.starting.devices import Devices
    from partita.graph.graph import Graph
    from partita.graph.readers.torch import TorchSource
    from partita.graph.types import Array, Dim

DEVICES = (None, "cpu", "HETERO:cpu", "HETERO:cpu,reference", "HETERO:cpu,onnxruntime,reference")
"""The device strings for which onnxruntime may answer before the rest of the request is checked."""

REGISTRY = "partita.accelerators.interface.registry"
"""The module that has to be imported before anybody can change a device or its configuration."""


def compile(  # noqa: A001  the contract's name
    graph: Graph | TorchSource | str | os.PathLike[str] | bytes | onnx.ModelProto,
    device: str | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    example_inputs: Any = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    strict: bool = False,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    name: str | None = None,
    optimize: bool = False,
    min_subgraph_size: int | None = None,
    plan: Placement | LockedPlan | str | os.PathLike[str] | None = None,
    **foreign: Never,
) -> CompiledModel:
    """The graph, ready to run on a device, or on several: "HETERO:first,second" places each op on the first that runs it, and
    "MULTI:first,second" compiles all of it for each, and sends each call to the one that is free. "AUTO:first,second" measures
    several placements, as `auto` does, within config={"AUTO": {"SECONDS": 60}}, and is never slower than HETERO was then.

    In place of a graph there may be whatever `load` reads (a path, bytes, a ModelProto), or a torch module, with
    `example_inputs` as for `from_torch`. `config` is a dictionary by device, flat if there is only one. `pin` and `forbid` are
    as for `query`. If ops of the graph have affinities, these decide, and every op has to have one. A subgraph that its device
    cannot compile goes to the next device, and `report` says so; with `strict` it is an error. `shapes` fixes sizes of inputs,
    `name` is the model's name in files and tables, `optimize` runs the default passes first (nodes that `query` knows may
    then vanish). Subgraphs of fewer than `min_subgraph_size` ops go to the next device that runs them. `plan` is a placement
    of this graph, or a file with one (`placement.lock`, `partita place --lock`): each op runs where it says, by default on
    the plan's devices."""
    if foreign:
        from partita.accelerators.interface.habits import OPTIONS  # start-up

        raise unexpected("compile", foreign, OPTIONS)
    given = (example_inputs, pin, forbid, shapes, name, min_subgraph_size, plan)
    if all(option is None for option in given) and strict is optimize is False:
        model = _at_once(graph, device, config)
        if model is not None:
            return model
    from partita.graph.readers import is_source, load  # start-up

    if is_source(graph):
        graph = load(graph, strict=strict)
    from partita.accelerators.compiling import compile as compile_graph  # start-up
    from partita.accelerators.interface.device_list import parse_auto  # start-up

    among = parse_auto(device)
    if among is not None:
        from partita.accelerators.precision.auto import compiled  # start-up

        if optimize or min_subgraph_size or plan is not None or example_inputs is not None:
            cause = "placements are measured, so that plan, optimize, min_subgraph_size and example_inputs have no meaning"
            raise AcceleratorError(cause, where=f"compile, device {device!r}", remedy="Leave them out, or name other devices")
        return compiled(graph, among, config, pin, forbid, strict=strict, shapes=shapes, name=name)  # type: ignore[arg-type]
    return compile_graph(
        graph, device, config, example_inputs=example_inputs, pin=pin, forbid=forbid, strict=strict, shapes=shapes, name=name,
        optimize=optimize, min_subgraph_size=min_subgraph_size, plan=plan,
    )


def _at_once(source: Any, device: Any, config: Any) -> Any:
    """The FileModel that answers before anything is read or compiled; None if more has to be checked first."""
    threads = _threads(device, config)
    if threads is None or REGISTRY in sys.modules or find_spec("tvm_ffi") is None or main_has_ended():
        return None
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    if not (getattr(source, "file", None) if path is None else str(path).endswith(".onnx")):
        return None
    from partita.accelerators.runtime.starting.file_model import opened, opened_graph  # start-up

    if path is None:
        return opened_graph(source, device, config, threads, begin)
    return opened(path, device, config, threads, begin)


def begin(read: Callable[[], Graph], device: Any, config: Any, home: str) -> Devices:
    """The devices of a model that answers already; what compiles is loaded now."""
    from partita.accelerators.compiling import begin as begin_graph  # start-up

    return begin_graph(read, device, config, home)


def _threads(device: Any, config: Any) -> int | None:
    """The number of threads (0: all cores) if the configuration is a valid START=now; None if it holds anything else."""
    if not (device is None or isinstance(device, str)) or device not in DEVICES or type(config) is not dict:
        return None
    values = dict(config)
    hetero, own = values.pop("HETERO", {}), values.pop("cpu", {})
    if type(hetero) is not dict or type(own) is not dict or set(values) & {*hetero, *own}:
        return None
    flat = {key: values.pop(key) for key in list(values) if device == "cpu" and key not in ("START", "START_WITH")}
    known = {"START": "now", **hetero, **values} if "START" in hetero or "START" in values else {}
    if known not in ({"START": "now"}, {"START": "now", "START_WITH": "onnxruntime"}) or set(flat) & set(own):
        return None
    own = {**own, **flat}
    threads, folder = own.pop("NUM_THREADS", 0), own.pop("CACHE_DIR", "on")
    may_be = not own and type(threads) is int and 0 <= threads <= 64 and type(folder) is str and _may_hold_the_cache(folder)
    return threads if may_be else None


def _may_hold_the_cache(folder: str) -> bool:
    """True for a folder that the user owns and may write to, or may create. Other values of CACHE_DIR are checked before the
    model answers, since they may be errors."""
    if folder.upper() in OFF | ON:
        return True
    wanted = path = os.path.abspath(os.path.expanduser(folder))
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        return False
    state = os.stat(path)
    return path != wanted or (state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


@at_a_device()
def import_model(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    config: Mapping[str, Any] | None = None,
    recompile: bool | str | Sequence[str] = False,
) -> CompiledModel:
    """The model that `CompiledModel.export` wrote, without compiling it again.

    The file may hold machine code, which is loaded into this process: only import files that you trust. Checksums are verified
    before anything is loaded; with a `key` the signature too. `config` is as for `compile`. A subgraph that does not fit here
    (another processor, another version of the library, a missing device) is an error that names the difference, unless
    `recompile` allows compiling it again from its ONNX body: True for the same device, or devices to choose from."""
    from partita.accelerators.runtime.compiled_model import CompiledModel  # start-up
    from partita.accelerators.runtime.package.unpacking import import_package  # start-up

    return import_package(check_path("import_model", path, AcceleratorError), key, config, recompile, CompiledModel)


def load(
    source: Any,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    params: str | os.PathLike[str] | bytes | Mapping[str, Any] | None = None,
    inline: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
    strict: bool = False,
) -> Graph:
    """Read a model: the path of an ONNX file or MXNet's "-symbol.json", a ModelProto, the bytes of an ONNX file, or "zoo:NAME".
    `shapes` replaces the file's shapes of inputs; `params` are an MXNet symbol's parameters (the file, its bytes, or
    arrays by name); `inline` replaces calls of model-local functions by their bodies; `base_dir` is the folder of external data
    of an ONNX model given as a ModelProto or as bytes. A file that deviates from ONNX (nodes out of order, an op of
    another opset) is read if its meaning is clear, as onnxruntime reads it, and `graph.attrs["notes"]` lists the deviations.
    With `strict` that is an error, and so is a declared type that contradicts the one inferred from the inputs."""
    from partita.graph.readers import load as read  # start-up

    graph = read(source, shapes, params, inline, base_dir, strict)
    if strict:
        from partita.passes.infer import infer  # start-up

        infer(graph, strict=False, check_declared=True)
    return graph


def to_device(array: Array, device: str) -> DeviceArray:
    """A copy of the array in the memory of one device, such as "opencl" or "opencl.1". Models on that device read it, and write
    their outputs to it if it is passed as `out`, without a copy to the host; `.numpy()` copies it back."""
    import numpy as np

    from partita.accelerators.interface.device_list import parse_devices  # start-up
    from partita.graph.types import dtype_name  # start-up

    (first, *others) = parse_devices(device)
    if others:
        raise AcceleratorError(f"{device!r} is several devices", where="to_device", remedy="Name one of them")
    own = first.accelerator
    if first.device_id is not None:
        own = own.configured(own.checked_config(own.labelled(first.device_id)))
    given = np.asarray(array)
    if dtype_name(given.dtype) == "string":
        raise AcceleratorError("no device's memory holds strings", where="to_device", remedy="Give its models the array itself")
    return own.to_device(given)
