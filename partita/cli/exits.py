"""The exit statuses of the command line; scripts may rely on them."""

from __future__ import annotations

OK = 0
"""Done."""

NO = 1
"""Partita refused, and said why, or a check failed."""

USAGE = 2
"""The command line is wrong."""

UNSUPPORTED = 3
"""What was asked for is shown, and no device runs some op of it."""

FAULT = 70
"""A fault in Partita: a traceback was printed."""

INTERRUPTED = 130
"""Ctrl-C."""

BROKEN_PIPE = 141
"""Whoever read the output stopped reading."""

TERMINATED = 143
"""SIGTERM."""

TEXT = """exit status: 0 done; 1 refused, with the reason, or a check failed; 2 the command line is wrong;
             3 shown, but no device runs some op; 70 a fault in Partita; 130 interrupted;
             141 the reader of the output went away; 143 terminated"""
"""The exit statuses as `--help` explains them."""
