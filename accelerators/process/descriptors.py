"""File descriptors outside the range of the standard streams.

A process may be started without its streams, as services often are. The next files that it opens then get their numbers, 0 to
2: a child process would use them as its own streams, and a library's output would go into them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys

FIRST = 3
"""The first number after the streams'."""

ERRORS = 2
"""The number of stderr."""


def above_streams(number: int) -> int:
    """The open file under such a number. The old number is closed, if it was a stream's."""
    if number >= FIRST:
        return number
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST)
    finally:
        os.close(number)


def pipe() -> tuple[int, int]:
    """Both ends of a pipe, the read end first."""
    reading, writing = os.pipe()
    return above_streams(reading), above_streams(writing)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    one, other = socket.socketpair()
    return _moved(one), _moved(other)


def _moved(end: socket.socket) -> socket.socket:
    return socket.socket(fileno=above_streams(end.detach()))


def at_a_terminal() -> bool:
    """True if stderr is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def show_progress(text: str, end: str = "\n") -> None:
    """Prints to stderr, if it can be written to."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)


def has_errors() -> bool:
    """True if this process has a stderr, which children may write to as well."""
    if sys.__stderr__ is None:
        return False
    try:
        os.fstat(ERRORS)
    except OSError:
        return False
    return True


def end_with(pipe: int) -> None:
    """Makes the system end this process group when the other end of the pipe is closed, as it is when the parent ends. This
    needs no thread, which a hanging library might keep from running. Nobody may write to the pipe."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    if hasattr(fcntl, "F_SETSIG"):  # on Linux: it ends processes that are stopped, too
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # it may have been closed before the system was told to watch it
        os.killpg(os.getpgrp(), signal.SIGIO)
