"""A child process that runs a module of ours: started, asked, and ended. `process/serving.py` is its side.

A request is JSON, and so is its answer; graphs and arrays lie beside them in shared memory. Nothing is pickled. A child ends with
its parent, for any reason and whatever it is doing. It has a process group of its own, since Ctrl-C is for the parent, which
ends its children itself, but stays in the parent's session: systems that schedule by session would ignore its priority in
another."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from partita.accelerators.process import messages
from partita.accelerators.process.descriptors import ERRORS, above_streams, has_errors, pipe, socket_pair
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.process.memory import Packing, SharedMemory
from partita.passes.python_child import environment

QUIET = subprocess.DEVNULL
"""The output of a child that writes nothing."""


class Ended(Exception):
    """The child ended before it answered; the message says in which way."""

    def __init__(self, code: int, why: str = "") -> None:
        name = f", {signal.Signals(-code).name}" if -code in {*signal.Signals} else ""
        super().__init__(why or (f"signal {-code}{name}" if code < 0 else f"exit status {code}"))
        self.code = code
        """The exit status, or the negative number of a signal."""


class Child:
    """One child process, for one thread at a time; only `kill` may be called by others."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "a process of its own",
        output: int | None = None,
        paths: Sequence[str] | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`name` is its place in errors. `output` is an open file for its stdout and stderr, by default the parent's stderr.
        `paths` replace the folders of PYTHONPATH, `variables` are added to the environment."""
        self.name = name
        output = output if output is not None else ERRORS if has_errors() else QUIET
        with ExitStack() as ours, ExitStack() as theirs:
            self.requests, self.replies = [ours.enter_context(closing(SharedMemory())) for _ in range(2)]
            self._socket, other = socket_pair()
            alive, self._life = pipe()
            ours.enter_context(self._socket)
            ours.callback(os.close, self._life)
            theirs.enter_context(other)
            theirs.callback(os.close, alive)
            given = (other.fileno(), alive, self.requests.file, self.replies.file)
            self._process = subprocess.Popen(
                [*command, *map(str, given)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=given,
                env=environment(paths, **variables), process_group=0,
            )
            ours.pop_all()  # what is open stays so
        self._ended: int | None = None
        """A file that becomes readable when the process has ended; None if the system has no such files."""
        with suppress(OSError, AttributeError):
            self._ended = above_streams(os.pidfd_open(self._process.pid))
        renewed_in_children(self)

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    @property
    def number(self) -> int:
        """The id of the process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], packing: Packing | None = None, seconds: float | None = None) -> Any:
        """The answer to a request whose arrays are in the packing; an error of the child's is raised. The child is ended if it is
        late, which raises TimeoutError, and by any other exception, since its answer would be taken for that of another
        request; `Ended` if it ended by itself, or what it said is not an answer."""
        try:
            if packing is not None:
                packing.write(self.requests)
            self._socket.settimeout(None if seconds is None else min(max(seconds, 0.001), messages.LONGEST))
            messages.send(self._socket, request)
            answer = messages.receive(self._socket, seconds, self._ended)
            error = messages.error_in(answer, self.name)
        except TimeoutError:
            self.end()
            raise
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self.end()
            raise Ended(self._process.returncode) from None
        except messages.Garbled as reason:
            self.end()
            raise Ended(self._process.returncode, str(reason)) from reason
        except BaseException:
            self.end()
            raise
        self.requests.shrink()
        if error is not None:
            raise error
        return answer["answer"]

    def kill(self) -> None:
        """Kills the process and its children."""
        if self._life >= 0:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends the process in any state."""
        self.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Closes the descriptors. In a forked process that is all: the child belongs to the parent."""
        self._process.returncode = self._process.returncode or 0
        if self._life >= 0:
            self._close()
            if self._ended is not None:
                os.close(self._ended)

    def renew(self) -> None:
        """Forgets the child in a forked process, which would else keep it alive beyond the parent."""
        self.forget()

    def _close(self) -> None:
        """Closes what both processes share."""
        os.close(self._life)
        self._life = -1
        self._socket.close()
        self.requests.close()
        self.replies.close()


C = TypeVar("C", bound=Child)


class KeptChild(ABC, Generic[C]):
    """A child that is started for the first request, and again for the next one after it has ended. A forked process starts its
    own."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._child: C | None = None
        self._is_prepared = False
        renewed_in_children(self)

    @abstractmethod
    def new_child(self) -> C:
        """A new child."""

    @abstractmethod
    def prepare(self, child: C) -> None:
        """Waits until a new child can answer."""

    @property
    def current(self) -> C | None:
        """The current child, if there is one."""
        return self._child

    @contextmanager
    def child(self) -> Iterator[C]:
        """The running child, started if needed, for one thread at a time."""
        with self._guard.lock:
            child = self._begun()
            if not self._is_prepared:
                try:
                    self.prepare(child)
                except BaseException:
                    self.end()
                    raise
                self._is_prepared = True
            yield child

    def begin(self) -> None:
        """Starts the child before it is needed, and waits for nothing."""
        with self._guard.lock:
            self._begun()

    def _begun(self) -> C:
        """The running child, which may be unprepared."""
        if self._child is None or not self._child.is_alive:
            self.end()
            self._child, self._is_prepared = self.new_child(), False
        return self._child

    def end(self) -> None:
        """Ends the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def renew(self) -> None:
        """Forgets the child in a forked process, whose parent still uses it."""
        child, self._child = self._child, None
        if child is not None:
            child.forget()
