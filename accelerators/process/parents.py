"""Child processes that end with their parent, for any reason and whatever they are doing."""

from __future__ import annotations

import fcntl
import os
import select
import signal


def end_with(pipe: int) -> None:
    """Makes the system end this process group when the other end of the pipe is closed, as it is when the parent ends. This
    needs no thread, which a hanging library might keep from running. Nobody may write to the pipe."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it may have been closed before the system was told to watch it
        os.killpg(os.getpgrp(), signal.SIGIO)
