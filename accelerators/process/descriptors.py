"""Open files whose numbers are none of the standard streams'.

A process may be started without its streams, as a service often is. The next files that it opens then have their numbers, 0 to
2: a child process would find its own streams in their places, and what a library prints would go into them."""

from __future__ import annotations

import fcntl
import os
import socket
import sys

FIRST = 3
"""The first number that is no stream's."""

ERRORS = 2
"""The number of the stream for errors."""


def above_streams(number: int) -> int:
    """The open file under such a number. The number that it had is closed, if it was a stream's."""
    if number >= FIRST:
        return number
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST)
    finally:
        os.close(number)


def pipe() -> tuple[int, int]:
    """Both ends of a pipe, the one to read from first."""
    reading, writing = os.pipe()
    return above_streams(reading), above_streams(writing)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected."""
    one, other = socket.socketpair()
    return _moved(one), _moved(other)


def _moved(end: socket.socket) -> socket.socket:
    return socket.socket(fileno=above_streams(end.detach()))


def at_a_terminal() -> bool:
    """Does somebody at a terminal see the stream for errors?"""
    return sys.stderr is not None and sys.stderr.isatty()


def has_errors() -> bool:
    """Has this process a stream for errors, which children may write to as well?"""
    if sys.__stderr__ is None:
        return False
    try:
        os.fstat(ERRORS)
    except OSError:
        return False
    return True
