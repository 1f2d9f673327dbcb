"""Exit statuses of the command line; scripts may rely on them."""

from __future__ import annotations

OK = 0
"""Done."""

NO = 1
"""Partita refused, and said why, or a check failed."""

USAGE = 2
"""The command line is wrong."""

UNSUPPORTED = 3
"""The result is shown, but no device runs some op of it."""

FAULT = 70
"""An internal error of Partita: a traceback was printed."""

INTERRUPTED = 130
"""Ctrl-C."""

BROKEN_PIPE = 141
"""The reader of the output stopped reading."""

TERMINATED = 143
"""SIGTERM."""

TEXT = """exit status: 0 done; 1 refused, with the reason, or a check failed; 2 the command line is wrong;
             3 shown, but no device runs one of the ops; 70 a fault in Partita; 130 interrupted;
             141 the reader of the output went away; 143 terminated"""
"""The exit statuses for `--help`."""
