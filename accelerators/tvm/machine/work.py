"""How little work is one thread's: it is done in about the time that it takes to wake the others.

Each number counts what its kernels count. They differ as the steps do: a product in a register is cheaper than a power."""

POWERS = 16_384
"""Numbers that a power is taken of."""

MOVES = 32_768
"""Numbers that are moved from one layout to another, or mixed with a neighbour."""

STEPS = 65_536
"""Steps of an element-wise function: what is asked about unless another count is named."""

TAPS = 200_000
"""Numbers that windows read."""

VALUE_PRODUCTS = 200_000
"""Multiplications of two values, whose panels are laid out in each run."""

MATRIX_PRODUCTS = 500_000
"""Multiplications by a constant matrix."""

STEP_PRODUCTS = 250_000
"""Multiplications of one step of a recurrent layer, all of which wait for the step before."""

CONVOLUTION_PRODUCTS = 1_000_000
"""Multiplications by the weights of a convolution."""

BYTE_PRODUCTS = 1_000_000
"""Multiplications of bytes."""

BYTE_TAPS = 262_144
"""Bytes that windows read, or that convolutions of each channel by itself multiply."""

LOOKUPS = 16_384
"""Bytes that are looked up in a table, one by one."""

TASKS = 4
"""The number of tasks for each thread where work is cut finely: a thread that is held up is late by little."""
