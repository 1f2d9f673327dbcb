"""The plugin interface, one file (or folder) per device, HETERO, the compiled model that runs.

Names are imported on first use, since a model of a file answers before most of this package is loaded."""

from typing import TYPE_CHECKING

from partita.graph.cached_property import lazily

if TYPE_CHECKING:
    from partita.accelerators.api import compile, import_model, load, to_device
    from partita.accelerators.choosing.choose_precision import choose_precision
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
    from partita.accelerators.placement.placement import Placement
    from partita.accelerators.placement.placing import query
    from partita.accelerators.precision.precision_plan import PrecisionPlan
    from partita.accelerators.running.compiled_model import CompiledModel
    from partita.accelerators.running.profile import Profile
    from partita.accelerators.tuning import TuningReport, tune

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
    "Accelerator": "partita.accelerators.interface.accelerator",
    "AcceleratorError": "partita.accelerators.errors",
    "AcceleratorUnavailable": "partita.accelerators.errors",
    "BadConfig": "partita.accelerators.errors",
    "BadValue": "partita.accelerators.interface.keys",
    "CompileError": "partita.accelerators.errors",
    "DeviceMistake": "partita.accelerators.errors",
    "CompiledModel": "partita.accelerators.running.compiled_model",
    "CompiledSubgraph": "partita.accelerators.interface.accelerator",
    "DeviceInfo": "partita.accelerators.interface.registry",
    "InputError": "partita.accelerators.errors",
    "Key": "partita.accelerators.interface.keys",
    "NotSupported": "partita.accelerators.errors",
    "Placement": "partita.accelerators.placement.placement",
    "PrecisionPlan": "partita.accelerators.precision.precision_plan",
    "Profile": "partita.accelerators.running.profile",
    "ProfileRow": "partita.accelerators.interface.accelerator",
    "QueueFull": "partita.accelerators.errors",
    "RequestTimeout": "partita.accelerators.errors",
    "RunError": "partita.accelerators.errors",
    "TuningReport": "partita.accelerators.tuning",
    "UnknownDevice": "partita.accelerators.errors",
    "UnknownKey": "partita.accelerators.errors",
    "accelerator": "partita.accelerators.interface.registry",
    "choose_precision": "partita.accelerators.choosing.choose_precision",
    "compile": "partita.accelerators.api",
    "devices": "partita.accelerators.interface.registry",
    "import_model": "partita.accelerators.api",
    "load": "partita.accelerators.api",
    "query": "partita.accelerators.placement.placing",
    "register_accelerator": "partita.accelerators.interface.registry",
    "to_device": "partita.accelerators.api",
    "tune": "partita.accelerators.tuning",
    "unregister_accelerator": "partita.accelerators.interface.registry",
})
