"""The language in which kernels are written: typed expressions over buffers, loops, and intrinsics of the processor.

    kernel = Kernel("twice")
    x, y = kernel.input("x", float32, (64, 16)), kernel.output("y", float32, (64, 16))
    with kernel.loop(64, "row") as row:
        y[row, 0] = x.vector(16, row, 0) * 2.0

`str(kernel)` is its text, `emit(kernel)` the function for TVM. A type error is raised where the expression is written."""

from partita.accelerators.tvm.kernels.language.buffers import Buffer, Registers
from partita.accelerators.tvm.kernels.language.emit import TooMuchCode, emit, given_sizes, narrowing, symbols_of
from partita.accelerators.tvm.kernels.language.expressions import all_of, if_inside, maximum, minimum, named, select
from partita.accelerators.tvm.kernels.language.intrinsics import (
    CIRCULAR,
    Intrinsic,
    address,
    bfdot,
    bfmmla,
    both_rows,
    ceil,
    dot_bfloat16,
    even_lanes,
    exactly,
    exp,
    float_remainder,
    floor,
    fmlal,
    high_halves,
    lane_max,
    lane_min,
    lane_sum,
    log,
    low_halves,
    nearest,
    odd_lanes,
    power,
    quotient,
    remainder,
    sdot,
    sqrt,
    tdpbf16ps,
    tdpbusd,
    tile_configure,
    tile_load,
    tile_release,
    tile_store,
    tile_zero,
    usdot,
    usmmla,
    vpdpbusd,
    vpermps,
    vpmaddwd,
)
from partita.accelerators.tvm.kernels.language.kernel import Kernel
from partita.accelerators.tvm.kernels.language.types import (
    ELEMENTS,
    Element,
    Type,
    bfloat16,
    boolean,
    element_named,
    float16,
    float32,
    float64,
    index,
    int8,
    int16,
    int32,
    int64,
    type_of,
    uint8,
    uint16,
    uint32,
    uint64,
)
from partita.accelerators.tvm.kernels.language.values import Operand, Value, constant

__all__ = [
    "CIRCULAR", "ELEMENTS", "Buffer", "Element", "Intrinsic", "Kernel", "Operand", "Registers", "TooMuchCode", "Type", "Value",
    "address", "all_of",
    "bfloat16", "boolean", "ceil", "constant", "dot_bfloat16", "element_named", "emit", "exactly", "exp", "float16",
    "given_sizes",
    "float32", "float64", "float_remainder", "floor", "if_inside", "index", "int16", "int32", "int64", "int8", "lane_max",
    "lane_min", "lane_sum", "log", "maximum", "minimum", "named", "narrowing", "nearest", "power", "quotient", "remainder",
    "select", "sqrt", "symbols_of", "tdpbf16ps", "tdpbusd", "tile_configure", "tile_load", "tile_release", "tile_store",
    "tile_zero", "type_of", "uint16", "uint32", "uint64", "uint8", "vpdpbusd", "vpermps", "vpmaddwd",
    "bfdot", "bfmmla", "both_rows", "even_lanes", "fmlal", "high_halves", "low_halves", "odd_lanes", "sdot", "usdot", "usmmla",
]
