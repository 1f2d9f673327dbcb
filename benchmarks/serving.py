"""The examples of serving under load: python -m benchmarks.serving [--ray] [--clients 200] [--seconds 60]

uvicorn serves the ASGI application of docs/serving.md on loopback, or, with --ray, Ray Serve the deployment of docs/ray-serve.md.
Each client asks again as soon as it has its answer. Exits with 1 if an answer is wrong or lost, or if memory grows."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown

DOCS = Path(__file__).resolve().parents[1] / "docs"

GROWTH = 1.1
"""Memory grows if at the end it is more than so many times what it was after a quarter of the time."""

DEADLINE = 30.0
"""Seconds that a caller of Ray Serve waits."""

Row = list[float]
Ask = Callable[[Row], Awaitable[tuple[str, float | None]]]
"""Sends a row; -> what came of it ("answered", "refused", "late"), and the answer."""


class Load:
    """Clients that ask, and what they saw."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.seconds: list[float] = []

    async def client(self, number: int, ask: Ask, end: float) -> None:
        """One request after another."""
        numbers = random.Random(number)
        while time.perf_counter() < end:
            row = [float(numbers.randint(-9, 9)) for _ in range(4)]
            start = time.perf_counter()
            try:
                status, answer = await ask(row)
            except (OSError, asyncio.IncompleteReadError):
                self.seen["lost"] += 1
                continue
            self.seconds.append(time.perf_counter() - start)
            is_wrong = status == "answered" and answer != sum(value for value in row if value > 0)
            self.seen["wrong" if is_wrong else status] += 1


async def run_clients(connect: Callable[[], Awaitable[Ask]], clients: int, seconds: float, memory: Callable[[], int]) -> int:
    """Print the table; -> 1 if something is not as it must be."""
    load, asks = Load(), [await connect() for _ in range(clients)]
    start = time.perf_counter()
    tasks = [asyncio.create_task(load.client(i, ask, start + seconds)) for i, ask in enumerate(asks)]
    held = []
    while time.perf_counter() < start + seconds:
        await asyncio.sleep(seconds / 60)
        held.append(memory())
    await asyncio.gather(*tasks)
    milliseconds = [f"{value:.1f}" for value in np.percentile(np.array(load.seconds) * 1e3, (50, 90, 99, 100))]
    begin, last = held[len(held) // 4] / 2**20, held[-1] / 2**20
    header = ["clients", "seconds", "answered", "wrong", "lost", "refused", "late", "ms, median", "90 %", "99 %", "most"]
    counts = [load.seen[name] for name in ("answered", "wrong", "lost", "refused", "late")]
    cells = [clients, f"{seconds:.0f}", *counts, *milliseconds, f"{begin:.0f}", f"{last:.0f}"]
    print(markdown([*header, "MiB after a quarter", "at the end"], [cells]))
    return int(load.seen["wrong"] + load.seen["lost"] > 0 or last > GROWTH * begin or not load.seen["answered"])


def resident(pid: int) -> int:
    """The bytes that a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def example(page: str) -> str:
    """The program of a page."""
    match = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert match is not None
    return match[1]


# -- uvicorn ------------------------------------------------------------------------------------------------


def serve_by_uvicorn(clients: int, seconds: float) -> int:
    """The ASGI application, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        Path(folder, "served.py").write_text(example("serving.md"))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        options = ["--port", str(port), "--log-level", "warning", "--app-dir", folder]
        server = subprocess.Popen([sys.executable, "-m", "uvicorn", "served:app", *options])
        try:
            _wait_for(port, server)
            return asyncio.run(run_clients(lambda: _http(port), clients, seconds, lambda: resident(server.pid)))
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("error: the server ended before it listened")


async def _http(port: int) -> Ask:
    """A connection that is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(row: Row) -> tuple[str, float | None]:
        body = json.dumps(row).encode()
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = re.search(rb"content-length: (\d+)", head.lower())
        answer = await reader.readexactly(int(length[1])) if length else await _chunks(reader)
        names = {200: "answered", 503: "refused", 504: "late"}
        return names.get(status, f"status {status}"), json.loads(answer) if status == 200 else None

    return ask


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while size := int(await reader.readline(), 16):
        content += (await reader.readexactly(size + 2))[:size]
    await reader.readline()
    return content


# -- Ray Serve ----------------------------------------------------------------------------------------------


def serve_by_ray(clients: int, seconds: float) -> int:
    """The deployment, called by its handle."""
    logging.getLogger("ray.serve").setLevel("ERROR")
    program = example("ray-serve.md").split("answers = [")[0]
    names: dict[str, Any] = {"__name__": "served"}
    exec(compile(program, "ray-serve.md", "exec"), names)  # noqa: S102  the page's own program
    handle, refused = names["handle"], names["BackPressureError"]

    async def ask(row: Row) -> tuple[str, float | None]:
        try:
            return "answered", await asyncio.wait_for(handle.remote(row), DEADLINE)
        except refused:
            return "refused", None
        except TimeoutError:
            return "late", None

    async def connect() -> Ask:
        return ask

    replicas = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"ray::ServeReplica" in path.read_bytes() and b"Sums" in path.read_bytes()
    ]
    try:
        return asyncio.run(run_clients(connect, clients, seconds, lambda: sum(map(resident, replicas))))
    finally:
        names["ray"].shutdown()


def main() -> int:
    """Serve, ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true", help="Ray Serve in place of uvicorn")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    return (serve_by_ray if args.ray else serve_by_uvicorn)(args.clients, args.seconds)


if __name__ == "__main__":
    sys.exit(main())
