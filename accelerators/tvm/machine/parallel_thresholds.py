"""Amounts of work below which one thread is used: such work takes about as long as waking the other threads.

Each constant has the unit of its kernels. They differ because the steps do: a product in a register is cheaper than a power."""

POWERS = 16_384
"""Powers."""

MOVES = 32_768
"""Elements moved from one layout to another, or combined with a neighbour."""

STEPS = 65_536
"""Steps of an element-wise function; the default."""

TAPS = 200_000
"""Elements that windows read."""

VALUE_PRODUCTS = 200_000
"""Multiplications of two matrices neither of which is constant: their panels are packed in each run."""

MATRIX_PRODUCTS = 500_000
"""Multiplications by a constant matrix."""

STEP_PRODUCTS = 250_000
"""Multiplications of one step of a recurrent layer, which all depend on the step before."""

CONVOLUTION_PRODUCTS = 1_000_000
"""Multiplications by the weights of a convolution."""

BYTE_PRODUCTS = 1_000_000
"""Multiplications of bytes."""

BYTE_TAPS = 262_144
"""Bytes that windows read, or that depthwise convolutions multiply."""

LOOKUPS = 16_384
"""Bytes looked up in a table, one by one."""

TASKS = 4
"""Number of tasks per thread for finely cut work: a delayed thread then costs little."""
