"""A client of the KServe V2 protocol runs the stages that docs/kserve.md serves, over HTTP."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kserve.md"


def test_a_client_of_triton_gets_the_bytes_of_the_whole_model() -> None:
    pytest.importorskip("tritonclient.http")
    uvicorn = pytest.importorskip("uvicorn")
    text = PAGE.read_text("utf-8")
    names: dict[str, Any] = {"__name__": "kserve"}
    exec(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0], names)  # noqa: S102  that is the test
    (client,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(names["app"], log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        until = time.monotonic() + 60
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(client.replace("127.0.0.1:8000", f"127.0.0.1:{listening.getsockname()[1]}"), names)  # noqa: S102
        server.should_exit = True
        thread.join(60)
    assert printed.getvalue() == "True\nTrue\n"
