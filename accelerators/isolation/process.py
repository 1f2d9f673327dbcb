"""The child process of a device, from the parent's side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.isolation import messages
from partita.accelerators.isolation.memory import Packing, SharedMemory
from partita.accelerators.process.descriptors import ERRORS, above_streams, has_errors, pipe, socket_pair
from partita.accelerators.process.exit_barrier import when_the_door_is_closed
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.passes.python_child import environment, implicit_path, module_command

STARTING = 60.0
"""Seconds until a started child must have created the device."""

COMMAND = module_command("partita.accelerators.isolation.child")
"""The command that starts a child."""


@attrs.frozen(slots=True)
class ClassOrigin:
    """The module and name by which a child finds the class of a device."""

    device: str
    """The device's name."""
    module: str
    """The module that defines the class."""
    path: str
    """The file of a module that cannot be imported by name, such as the main script; empty for others."""
    name: str
    """The class's name in it."""


def origin_of(device: str, kind: type) -> ClassOrigin:
    """The location of the class for a child; AcceleratorError for one that exists only in this process."""
    module, path = kind.__module__, ""
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module, path = (spec.name, "") if spec is not None else (module, os.path.abspath(getattr(main, "__file__", None) or ""))
    if "<" in kind.__qualname__ or (module == "__main__" and not os.path.isfile(path)):
        raise AcceleratorError(
            f"its class {kind.__qualname__} cannot be found by another process",
            where=f"ISOLATE of device {device!r}",
            remedy="Define the class at the top level of a module that can be imported, or leave ISOLATE out",
        )
    return ClassOrigin(device, module, path, kind.__qualname__)


@attrs.frozen(slots=True)
class Limit:
    """The time limit of each task of a child."""

    seconds: float
    """The limit in seconds."""
    key: str = "ISOLATE_SECONDS"
    """The configuration key that extends it."""


@attrs.frozen(slots=True)
class ChildTask:
    """The task of a child, for errors if the child fails."""

    doing: str
    """For example "while it ran"."""
    limit: Limit
    """Its time limit."""
    error: type[AcceleratorError]
    """The class of the raised error."""


class Child:
    """One child process. A thread that talks to it holds the lock of its DeviceProcess."""

    def __init__(self, origin: ClassOrigin, *, quiet: bool = False, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """A `quiet` one writes nothing to the parent's stderr, and stays in its session: systems that schedule by session would
        ignore its priority in a session of its own. `variables` are added to the parent's
        environment."""
        self.origin = origin
        errors = subprocess.DEVNULL if quiet or not has_errors() else None
        self.requests, self.replies = SharedMemory(), SharedMemory()
        self.dropped: deque[int] = deque()
        """The subgraphs that are not used any more."""
        self._socket, theirs = socket_pair()
        alive, self._life = pipe()
        given = (theirs.fileno(), alive, self.requests.file, self.replies.file)
        self._last = implicit_path()
        """The folders that a child searches last for a module."""
        paths = [path for path in sys.path if path not in self._last]
        try:
            self._process = subprocess.Popen(
                [*COMMAND, *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=ERRORS if errors is None else errors,
                stderr=errors,
                pass_fds=given,
                env=environment(paths, **variables),
                start_new_session=not quiet,  # Ctrl-C is for the parent, which ends its children itself
                process_group=0 if quiet else None,
            )
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(alive)
        self._ended: int | None = None
        """A file that becomes readable when the process has ended; None if the system has no such files."""
        with suppress(OSError):
            self._ended = above_streams(os.pidfd_open(self._process.pid))

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    def start(self, limit: Limit) -> None:
        """Creates the device within this time."""
        question = {**attrs.asdict(self.origin), "folders": [os.path.abspath(path) for path in self._last]}
        self.ask(question, Packing(), ChildTask("while it was started", limit, AcceleratorError))

    def ask(self, question: Mapping[str, Any], packing: Packing, task: ChildTask) -> Any:
        """The answer to a request whose arrays are in the packing. A failure of the child is raised as an error."""
        message = {**question, "drop": [self.dropped.popleft() for _ in range(len(self.dropped))]}
        try:
            packing.write(self.requests)
            self._socket.settimeout(task.limit.seconds)
            messages.send(self._socket, message)
            answer = messages.receive(self._socket, task.limit.seconds, self._ended)
        except TimeoutError:
            self.end()
            raise self._failed(
                f"it took more than {task.limit.seconds:g} s {task.doing}, and its process was ended",
                f"Give it more with {task.limit.key}, or place these ops on another device than {self.origin.device!r}",
                task,
            ) from None
        except (EOFError, OSError):
            raise self._failed(
                f"its process ended {task.doing} ({self._end_of_process()})",
                f"Place these ops on another device than {self.origin.device!r}; the next call starts its process anew",
                task,
            ) from None
        except BaseException:  # Ctrl-C: the child is busy, and its answer would be taken for that of another request
            self.end()
            raise
        self.requests.shrink()
        if "error" in answer:
            raise messages.error_of(answer["error"], self._where)
        return answer["answer"]

    def _failed(self, cause: str, remedy: str, task: ChildTask) -> AcceleratorError:
        return task.error(cause, where=self._where, remedy=remedy)

    @property
    def _where(self) -> str:
        return f"device {self.origin.device!r} in a process of its own"

    def _end_of_process(self) -> str:
        """The way in which the process ended, in words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self.end()
        code = self._process.returncode
        return f"signal {-code}, {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    @property
    def number(self) -> int:
        """The id of the process."""
        return self._process.pid

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

    def _close(self) -> None:
        """Closes what both processes share."""
        os.close(self._life)
        self._life = -1
        self._socket.close()
        self.requests.close()
        self.replies.close()


class DeviceProcess:
    """The child process of a device: started for the first request, and again for the next one after it has ended."""

    def __init__(self, origin: ClassOrigin) -> None:
        self.origin = origin
        self._guard = Guard()
        self._child: Child | None = None
        renewed_in_children(self)

    @property
    def time_to_start(self) -> Limit:
        """The time limit for starting a child."""
        return Limit(STARTING)

    @property
    def current(self) -> Child | None:
        """The current process, if there is one."""
        return self._child

    @contextmanager
    def child(self) -> Iterator[Child]:
        """The running process, started if needed, for one thread at a time."""
        with self._guard.lock:
            if self._child is None or not self._child.is_alive:
                self.end()
                self._child = self.new_child()
                try:
                    self._child.start(self.time_to_start)
                except BaseException:
                    self.end()
                    raise
            yield self._child

    def new_child(self) -> Child:
        """A new process."""
        return Child(self.origin)

    def end(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def renew(self) -> None:
        """Forgets the child in a forked process, whose parent still uses it; the next request starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.forget()


_guard = Guard()
_processes: dict[ClassOrigin, DeviceProcess] = {}


def process_of(device: str, kind: type) -> DeviceProcess:
    """The process of a class of devices."""
    origin = origin_of(device, kind)
    with _guard.lock:
        return _processes.setdefault(origin, DeviceProcess(origin))


def end_processes() -> None:
    """Ends all children; their subgraphs are compiled again on the next call."""
    for process in list(_processes.values()):
        process.end()


when_the_door_is_closed(end_processes)
