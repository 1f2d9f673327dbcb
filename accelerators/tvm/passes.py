"""Every pass of the TVM devices: importing it registers them under the family "tvm"."""

from partita.accelerators.tvm.bodies import indices  # noqa: F401
from partita.accelerators.tvm.kernels import catalogue  # noqa: F401
from partita.accelerators.tvm.kernels.attention import merging  # noqa: F401
from partita.accelerators.tvm.kernels.contraction.matmul import spread_gemms  # noqa: F401
from partita.accelerators.tvm.layouts import (  # noqa: F401
    blocking,
    conv1d,
    folding,
    kept_weights,
    narrowing,
    recurrent_projections,
    shared_tables,
    windows,
)
from partita.accelerators.tvm.layouts.quantized import notes, quantize, tables  # noqa: F401
from partita.accelerators.tvm.prepare import inferred_operands, opsets, preparing, quantized_weights  # noqa: F401
from partita.accelerators.tvm.sizes import sizing  # noqa: F401
