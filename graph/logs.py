"""The loggers of Partita, all under `partita`: silent until the program configures Python's logging."""

from __future__ import annotations

import logging

NAME = "partita"
"""The name of the root logger."""

logging.getLogger(NAME).addHandler(logging.NullHandler())


def logger(topic: str) -> logging.Logger:
    """The logger `partita.TOPIC`; docs/troubleshooting.md lists the topics."""
    return logging.getLogger(f"{NAME}.{topic}")
