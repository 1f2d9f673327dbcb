"""Child processes that end with their parent, however that ends, and whatever they are doing."""

from __future__ import annotations

import fcntl
import os
import select
import signal


def end_with(pipe: int) -> None:
    """Have the system end this group of processes when the other end of the pipe is closed, as it is when the parent ends. That
    needs no thread, which a library that hangs might keep from running. Nobody may write to the pipe."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # It was closed before the system was told to watch it.
        os.killpg(os.getpgrp(), signal.SIGIO)
