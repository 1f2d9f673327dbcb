"""What a reader may not do: take long, take much memory, open what it was not given."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 10.0
"""No file may take longer."""

MEMORY = 500 << 20
"""Reading a file may take so many bytes, and ten times the file's size."""

ROOT = Path(__file__).resolve().parents[3]

_IMPORTED = (".py", ".pyc", ".c", ".so", ".zip", "/entry_points.txt", "/METADATA", "/PKG-INFO")

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn")
_REACHES = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request")
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
)


_IN_MEMORY = "/memfd:partita"
"""How the system calls a file in memory that is the compiler's own."""


class Fence:
    """Sees, through Python's audit events, what is done while it is armed, and forbids changes outside of the folder.

    A reader that is wrong must harm nothing on the machine. A hook cannot be taken away again."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder) + os.sep
        self._code = tuple(
            os.path.realpath(path) + os.sep
            for path in {sys.prefix, sys.base_prefix, *filter(os.path.isdir, sys.path), str(ROOT)}
        )
        self._armed = False
        self._compiles = False
        self.seen: list[str] = []
        """What was done that may not be."""
        sys.addaudithook(self._hook)

    @contextmanager
    def armed(self, size: int, compiles: bool) -> Iterator[None]:
        """Watch, and hold memory to what a file of that size may take.

        What compiles may start a linker, and load what it made."""
        self.seen.clear()
        self._compiles = compiles
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_mapped() + MEMORY + 10 * size, hard))
        self._armed = True
        try:
            yield
        finally:
            self._armed = False
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._armed:
            return
        if event == "open":
            self._judge_open(arguments)
        elif event == "ctypes.dlopen" and arguments[0] is None:
            return  # The process itself, whose symbols are looked up.
        elif self._compiles and event in ("subprocess.Popen", "os.posix_spawn", "ctypes.dlopen"):
            if event == "ctypes.dlopen" and not self._inside(arguments[0]):
                self.seen.append(f"{event} {arguments[:1]!r:.200}")
        elif event in _STARTS or event in _REACHES or event == "ctypes.dlopen":
            self.seen.append(f"{event} {arguments[:1]!r:.200}")
        elif event in _CHANGES and not self._inside(arguments[0], arguments[-1]):
            self._forbid(f"{event} {arguments[0]!r:.200}")

    def _forbid(self, deed: str) -> None:
        """Note it, and keep it from being done."""
        self.seen.append(deed)
        raise PermissionError(f"the fence forbids: {deed}")

    def _judge_open(self, arguments: tuple[object, ...]) -> None:
        path, flags = arguments[0], arguments[2]
        if isinstance(path, int) or self._inside(path):
            return
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        real = (
            os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        )
        if not writes and (real + os.sep).startswith(self._code) and real.endswith(_IMPORTED):
            return  # an import, or a look for what is installed
        if writes:
            self._forbid(f"open {path!r:.200}")
        self.seen.append(f"open {path!r:.200}")

    def _inside(self, path: object, folder: object = None) -> bool:
        """Is the path in the folder that was given, or in one that it is relative to? What is open was judged then."""
        if isinstance(path, int):
            return True
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        name = os.fsdecode(path)
        if isinstance(folder, int) and folder > 2 and not os.path.isabs(name):
            name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        return os.path.realpath(name).startswith((self._folder, _IN_MEMORY)) or name == os.devnull


def _mapped() -> int:
    """How much memory the process has mapped."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def spent() -> float:
    """Seconds that this process has worked: what others do on the machine does not count."""
    return time.process_time()
