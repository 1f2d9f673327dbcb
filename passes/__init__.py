"""The pass manager, and all passes other than partitioning."""

from partita.passes import (  # noqa: F401  importing a pass registers it
    convert_opset,
    eliminate_dead,
    fold_batch_norm,
    fold_constants,
    infer_types,
    inline_functions,
    merge_common,
    nnvm_json,
    plan_memory,
    simplify_identities,
)
from partita.passes.manager import Settings, apply_pass, settings, watch_passes
from partita.passes.pipeline import DEFAULT, optimize
from partita.passes.plan_memory import MemoryPlan
from partita.passes.registry import (
    PassInfo,
    list_passes,
    list_pipelines,
    pass_info,
    register_pass,
    register_pipeline,
    unregister_pass,
)
from partita.passes.trace import PassRecord, PassTrace

__all__ = [
    "DEFAULT",
    "MemoryPlan",
    "PassInfo",
    "PassRecord",
    "PassTrace",
    "Settings",
    "apply_pass",
    "list_passes",
    "list_pipelines",
    "optimize",
    "pass_info",
    "register_pass",
    "register_pipeline",
    "settings",
    "unregister_pass",
    "watch_passes",
]
