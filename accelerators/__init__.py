"""The plugin interface, one file (or folder) per device, HETERO, the compiled model that runs.

Names are imported when they are first asked for, since a model of a file answers before most of this is there."""

from typing import TYPE_CHECKING

from graph.lazily import lazily

if TYPE_CHECKING:
    from accelerators.choosing_precision import choose_precision
    from accelerators.compiling_files import compile
    from accelerators.errors import (
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
    from accelerators.importing import import_model
    from accelerators.interface.accelerator import Accelerator, CompiledSubgraph, ProfileRow
    from accelerators.interface.keys import BadValue, Key
    from accelerators.interface.registry import (
        DeviceInfo,
        accelerator,
        devices,
        register_accelerator,
        unregister_accelerator,
    )
    from accelerators.loading_files import load
    from accelerators.placement.placement import Placement
    from accelerators.placement.placing import query
    from accelerators.precision.precision_plan import PrecisionPlan
    from accelerators.running.compiled_model import CompiledModel
    from accelerators.running.profile import Profile
    from accelerators.tuning import TuningReport, tune
    from accelerators.uploading import to_device

__all__ = [
    "Accelerator",
    "AcceleratorError",
    "AcceleratorUnavailable",
    "BadConfig",
    "BadValue",
    "CompileError",
    "CompiledModel",
    "CompiledSubgraph",
    "DeviceInfo",
    "DeviceMistake",
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
    "choose_precision",
    "compile",
    "devices",
    "import_model",
    "load",
    "query",
    "register_accelerator",
    "to_device",
    "tune",
    "unregister_accelerator",
]

__getattr__ = lazily(__name__, {
    "Accelerator": "accelerators.interface.accelerator",
    "AcceleratorError": "accelerators.errors",
    "AcceleratorUnavailable": "accelerators.errors",
    "BadConfig": "accelerators.errors",
    "BadValue": "accelerators.interface.keys",
    "CompileError": "accelerators.errors",
    "DeviceMistake": "accelerators.errors",
    "CompiledModel": "accelerators.running.compiled_model",
    "CompiledSubgraph": "accelerators.interface.accelerator",
    "DeviceInfo": "accelerators.interface.registry",
    "InputError": "accelerators.errors",
    "Key": "accelerators.interface.keys",
    "NotSupported": "accelerators.errors",
    "Placement": "accelerators.placement.placement",
    "PrecisionPlan": "accelerators.precision.precision_plan",
    "Profile": "accelerators.running.profile",
    "ProfileRow": "accelerators.interface.accelerator",
    "QueueFull": "accelerators.errors",
    "RequestTimeout": "accelerators.errors",
    "RunError": "accelerators.errors",
    "TuningReport": "accelerators.tuning",
    "UnknownDevice": "accelerators.errors",
    "UnknownKey": "accelerators.errors",
    "accelerator": "accelerators.interface.registry",
    "choose_precision": "accelerators.choosing_precision",
    "compile": "accelerators.compiling_files",
    "devices": "accelerators.interface.registry",
    "import_model": "accelerators.importing",
    "load": "accelerators.loading_files",
    "query": "accelerators.placement.placing",
    "register_accelerator": "accelerators.interface.registry",
    "to_device": "accelerators.uploading",
    "tune": "accelerators.tuning",
    "unregister_accelerator": "accelerators.interface.registry",
})
