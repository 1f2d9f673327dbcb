"""The plugin interface, one file (or folder) per device, HETERO, the compiled model that runs."""

from typing import TYPE_CHECKING

from accelerators.compiling import compile
from accelerators.errors import (
    AcceleratorError,
    AcceleratorUnavailable,
    BadConfig,
    CompileError,
    InputError,
    NotSupported,
    QueueFull,
    RequestTimeout,
    RunError,
    UnknownDevice,
    UnknownKey,
)
from accelerators.interface.accelerator import Accelerator, CompiledSubgraph, ProfileRow
from accelerators.interface.keys import BadValue, Key
from accelerators.interface.registry import (
    DeviceInfo,
    accelerator,
    devices,
    register_accelerator,
    unregister_accelerator,
)
from accelerators.placement.placement import Placement
from accelerators.placement.placing import query
from accelerators.running.compiled_model import CompiledModel
from accelerators.running.profile import Profile
from graph.lazily import lazily

if TYPE_CHECKING:
    from accelerators.choosing_precision import choose_precision
    from accelerators.importing import import_model
    from accelerators.precision.precision_plan import PrecisionPlan
    from accelerators.tuning import TuningReport, tune

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
    "query",
    "register_accelerator",
    "tune",
    "unregister_accelerator",
]

__getattr__ = lazily(__name__, {
    "PrecisionPlan": "accelerators.precision.precision_plan",
    "TuningReport": "accelerators.tuning",
    "choose_precision": "accelerators.choosing_precision",
    "import_model": "accelerators.importing",
    "tune": "accelerators.tuning",
})
