"""The plugin interface, one file (or folder) per device, HETERO, the compiled model that runs.

Names are imported on first use: with START=now a model runs before most of this package is loaded."""

from typing import TYPE_CHECKING

from partita.accelerators.interface import PASSES, SHIPPED, Shipped
from partita.graph.cached_property import lazily

if TYPE_CHECKING:
    from partita.accelerators.api import compile, import_model, load, to_device
    from partita.accelerators.errors import (
        AcceleratorError,
        AcceleratorUnavailable,
        BadConfig,
        CompileError,
        DeviceMistake,
        InputError,
        NotSupported,
        QueueFull,
        RequestTimeout,
        RunError,
        UnknownDevice,
        UnknownKey,
    )
    from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph, ProfileRow
    from partita.accelerators.interface.keys import BadValue, Key
    from partita.accelerators.interface.registry import (
        DeviceInfo,
        accelerator,
        devices,
        register_accelerator,
        unregister_accelerator,
    )
    from partita.accelerators.placement.costs import Costs, HandOver
    from partita.accelerators.placement.placement import Placement
    from partita.accelerators.placement.placing import query
    from partita.accelerators.precision.auto import AutoChoice, auto
    from partita.accelerators.precision.choose_precision import choose_precision
    from partita.accelerators.precision.measured_costs import measure
    from partita.accelerators.precision.place import place, place_many
    from partita.accelerators.precision.precision_plan import PrecisionPlan
    from partita.accelerators.precision.tuning import TuningReport, tune
    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.profile import Profile

__all__ = [
    "Accelerator",
    "AcceleratorError",
    "AcceleratorUnavailable",
    "AutoChoice",
    "BadConfig",
    "BadValue",
    "CompileError",
    "CompiledModel",
    "CompiledSubgraph",
    "Costs",
    "DeviceInfo",
    "DeviceMistake",
    "HandOver",
    "InputError",
    "Key",
    "NotSupported",
    "Placement",
    "PrecisionPlan",
    "Profile",
    "ProfileRow",
    "QueueFull",
    "RequestTimeout",
    "RunError",
    "TuningReport",
    "UnknownDevice",
    "UnknownKey",
    "accelerator",
    "auto",
    "choose_precision",
    "compile",
    "devices",
    "import_model",
    "load",
    "measure",
    "place",
    "place_many",
    "query",
    "register_accelerator",
    "to_device",
    "tune",
    "unregister_accelerator",
]

__getattr__ = lazily(__name__, {
    "partita.accelerators.api": "compile import_model load to_device",
    "partita.accelerators.precision.auto": "AutoChoice auto",
    "partita.accelerators.precision.choose_precision": "choose_precision",
    "partita.accelerators.precision.measured_costs": "measure",
    "partita.accelerators.precision.place": "place place_many",
    "partita.accelerators.errors": (
        "AcceleratorError AcceleratorUnavailable BadConfig CompileError DeviceMistake InputError "
        "NotSupported QueueFull RequestTimeout RunError UnknownDevice UnknownKey"
    ),
    "partita.accelerators.interface.accelerator": "Accelerator CompiledSubgraph ProfileRow",
    "partita.accelerators.interface.keys": "BadValue Key",
    "partita.accelerators.interface.registry": "DeviceInfo accelerator devices register_accelerator unregister_accelerator",
    "partita.accelerators.placement.costs": "Costs HandOver",
    "partita.accelerators.placement.placement": "Placement",
    "partita.accelerators.placement.placing": "query",
    "partita.accelerators.precision.precision_plan": "PrecisionPlan",
    "partita.accelerators.runtime.compiled_model": "CompiledModel",
    "partita.accelerators.runtime.profile": "Profile",
    "partita.accelerators.precision.tuning": "TuningReport tune",
})

SHIPPED["cpu"] = Shipped("partita.accelerators.tvm.cpu", "CpuAccelerator")
SHIPPED["cuda"] = Shipped("partita.accelerators.tvm.cuda", "CudaAccelerator")
SHIPPED["onnxruntime"] = Shipped("partita.accelerators.engines.onnxruntime", "OnnxRuntimeAccelerator", is_engine=True)
SHIPPED["opencl"] = Shipped("partita.accelerators.tvm.opencl", "OpenClAccelerator")
SHIPPED["openvino"] = Shipped("partita.accelerators.engines.openvino", "OpenVinoAccelerator", is_engine=True)
SHIPPED["reference"] = Shipped("partita.accelerators.engines.reference", "ReferenceAccelerator")
SHIPPED["HETERO"] = Shipped("partita.accelerators.placement.hetero", "HeteroAccelerator")
PASSES["tvm"] = "partita.accelerators.tvm.passes"
