"""The child process of a device, from the parent's side."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.child import QUIET, Child, Ended, KeptChild
from partita.accelerators.process.exit_barrier import when_the_door_is_closed
from partita.accelerators.process.forking import Guard
from partita.accelerators.process.memory import Packing
from partita.passes.python_child import implicit_path, module_command

STARTING = 60.0
"""Seconds until a started child must have created the device."""

COMMAND = module_command("partita.accelerators.interface.isolation.child")
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


class DeviceChild(Child):
    """The child process of a device."""

    def __init__(self, origin: ClassOrigin, *, quiet: bool = False, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """A `quiet` one writes nothing to the parent's stderr. `variables` are added to the parent's environment."""
        self.origin = origin
        self.dropped: deque[int] = deque()
        """The subgraphs that are not used any more."""
        self._last = implicit_path()
        """The folders that a child searches last for a module."""
        super().__init__(
            COMMAND,
            name=f"device {origin.device!r} in a process of its own",
            output=QUIET if quiet else None,
            paths=[path for path in sys.path if path not in self._last],
            variables=variables,
        )

    def start(self, limit: Limit) -> None:
        """Creates the device within this time."""
        question = {**attrs.asdict(self.origin), "folders": [os.path.abspath(path) for path in self._last]}
        self.asked(question, Packing(), ChildTask("while it was started", limit, AcceleratorError))

    def asked(self, question: Mapping[str, Any], packing: Packing, task: ChildTask) -> Any:
        """The answer to a request whose arrays are in the packing. A failure of the child is raised as an error."""
        message = {**question, "drop": [self.dropped.popleft() for _ in range(len(self.dropped))]}
        other = f"place these ops on another device than {self.origin.device!r}"
        try:
            return self.ask(message, packing, task.limit.seconds)
        except TimeoutError:
            cause = f"it took more than {task.limit.seconds:g} s {task.doing}, and its process was ended"
            remedy = f"Give it more with {task.limit.key}, or {other}"
        except Ended as end:
            cause = f"its process ended {task.doing} ({end})"
            remedy = f"P{other[1:]}; the next call starts its process anew"
        raise task.error(cause, where=self.name, remedy=remedy)


class DeviceProcess(KeptChild[DeviceChild]):
    """The child process of a device."""

    def __init__(self, origin: ClassOrigin) -> None:
        super().__init__()
        self.origin = origin

    @property
    def time_to_start(self) -> Limit:
        """The time limit for starting a child."""
        return Limit(STARTING)

    def new_child(self) -> DeviceChild:
        """A new process."""
        return DeviceChild(self.origin)

    def prepare(self, child: DeviceChild) -> None:
        """Creates the device in the child."""
        child.start(self.time_to_start)


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
