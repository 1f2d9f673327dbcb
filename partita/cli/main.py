"""`partita`: the verbs, and the handling of their errors."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

import partita as pt
from partita.cli import exits
from partita.cli.completion import SHELLS, Complete
from partita.cli.screen import DEBUG, Screen

if TYPE_CHECKING:
    from partita.cli.arguments import Usage
    from partita.graph.errors import PartitaError

VERBS = (
    "devices", "inspect", "partition", "place", "auto", "plan", "explain", "why", "diff", "run", "map", "bench", "compile",
    "export", "tune", "precision", "compare", "diagnose", "reduce", "passes", "capsule", "cache",
)
"""Verbs, one file each."""

ABOUT = """\
Decides which accelerator runs which part of a neural network, and compiles it.

MODEL is an ONNX file, an MXNet "-symbol.json", or a model of the zoo, like zoo:resnet50."""

EXAMPLE = """\
example:
  partita inspect zoo:resnet50
  partita partition zoo:resnet50 --devices HETERO:cpu,reference -o partitioned.onnx

"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; -> its exit status."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with _ended_as_by_error():
            code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_stdout()
        return exits.BROKEN_PIPE
    except KeyboardInterrupt:
        Screen().fail("interrupted", {})
        return exits.INTERRUPTED
    except OSError as error:
        _forget_stdout()
        Screen().fail(f"the output cannot be written: {error.strerror or error}", {})
        return exits.NO


@contextmanager
def _ended_as_by_error() -> Iterator[None]:
    """A context in which SIGTERM ends the command like an error, so that no half-written file remains."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: Any) -> NoReturn:
        raise SystemExit(exits.TERMINATED)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run_isolated(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the verb. Models may be untrusted, so a crash of ONNX's converter becomes an ordinary error."""
    from partita.passes import settings  # start-up

    before, settings.isolate_inference = settings.isolate_inference, True
    try:
        if getattr(arguments, "registers", None) is not None:
            from partita.cli.plugins import load_plugin  # start-up

            load_plugin(arguments.registers)
        code: int = arguments.run(arguments, screen)
    finally:
        settings.isolate_inference = before
    return code


def _run(argv: Sequence[str] | None) -> int:
    given = sys.argv[1:] if argv is None else argv
    screen, debug = Screen("--json" in given), bool(os.environ.get(DEBUG))
    try:
        if not given:
            make_parser().print_help(sys.stderr)
            return exits.USAGE
        arguments, rest = make_parser(_needed(given[0])).parse_known_args(given)
        if rest:
            raise _too_many(rest[0], f"partita {given[0]}", arguments.help())
        screen, debug = Screen(arguments.json, arguments.quiet), debug or arguments.debug
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place: screen.warn(str(message))
            with _told(arguments.verbose, screen):
                return _run_isolated(arguments, screen)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else exits.OK
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # stdout, which cannot be written to
        return _failed(error, screen, debug)


def _needed(first: str) -> Sequence[str]:
    """Verbs whose files have to be imported for a command line with this first word."""
    if first in VERBS:
        return (first,)
    if first in ("-h", "--help") or first.partition("=")[0] == "--completion":
        return VERBS
    if first == "--version":
        return ()
    if first.startswith("-"):
        raise _usage(f"a verb comes first, not {first!r}", "See partita --help")
    from partita.graph.errors import did_you_mean  # start-up

    raise _usage(f"there is no verb {first!r}", did_you_mean(first, VERBS) or f"There are {', '.join(VERBS)}")


def _usage(cause: str, remedy: str) -> Usage:
    """Error for a command line that means nothing."""
    from partita.cli.arguments import Usage  # start-up

    return Usage(cause, remedy=remedy)


def _too_many(word: str, command: str, help_text: str) -> Usage:
    """Error for a word of the command line that is not an argument."""
    from partita.accelerators.interface.habits import FLAGS  # start-up

    option = word.partition("=")[0]
    if not option.startswith("-"):
        return _usage(f"{word!r} is one argument too many", f"See {command} --help")
    known = dict.fromkeys(re.findall(r"--([a-z-]+)", help_text))
    plain = option.lstrip("-")  # dashes make any two options similar
    meant = FLAGS.get(plain)
    if meant == "MODEL":
        return _usage(f"there is no option {option!r}", f"The model is the first argument: {command} MODEL")
    near = [f"'--{name}'" for name in ([meant] if meant in known else get_close_matches(plain, known))]
    remedy = f"Did you mean {', '.join(near)}?" if near else f"See {command} --help"
    return _usage(f"there is no option {option!r}", remedy)


def make_parser(wanted: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Parser of the command line with these verbs."""
    parser = _ArgumentParser(
        prog="partita",
        description=ABOUT,
        epilog=EXAMPLE + exits.TEXT,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"partita {pt.__version__}")
    _add_completion(parser)
    verbs = parser.add_subparsers(metavar="VERB", required=True, title="verbs")
    for verb in wanted:
        module = importlib.import_module(f"partita.cli.{verb}")
        about = (module.__doc__ or "").strip()
        one = verbs.add_parser(
            verb,
            help=about.partition("\n")[0],
            description=about,
            epilog=f"example:\n{module.EXAMPLE}",
            formatter_class=_Help,
            allow_abbrev=False,
        )
        module.configure(one)
        _add_common(one, module.run)
    return parser


def _add_common(parser: argparse.ArgumentParser, run: Callable[..., int]) -> None:
    common = parser.add_argument_group("common options")
    common.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    common.add_argument("--quiet", action="store_true", help="no progress on stderr")
    common.add_argument("-v", "--verbose", action="count", default=0, help="log what is compiled, cached, moved; -vv: in detail")
    if "--plugin" not in parser.format_usage():
        text = "run this Python file first, which registers devices, properties, passes or ops"
        common.add_argument("--plugin", dest="registers", metavar="FILE.py", help=text)
    common.add_argument("--debug", action="store_true", help=f"show the traceback of an error (also: {DEBUG}=1)")
    parser.set_defaults(run=run, help=parser.format_help)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, with the options' names in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class _StoreOnce(argparse._StoreAction):
    """An option with one value that must not be given twice: one of the values would silently be dropped."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        given = namespace.__dict__.setdefault("_given", set())
        if option is not None and self.dest in given:
            raise argparse.ArgumentError(self, "it is given twice, and takes one value")
        given.add(self.dest)
        super().__call__(parser, namespace, values, option)


class _ArgumentParser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)

    def error(self, message: str) -> NoReturn:
        """Raise the error, with the help to read."""
        raise _usage(message, f"See {self.prog} --help")


def _failed(error: Exception, screen: Screen, debug: bool) -> int:
    """Print one message, and return its exit status."""
    from partita.cli.arguments import Usage  # start-up
    from partita.graph.errors import PartitaError  # start-up

    known = isinstance(error, (PartitaError, OSError))
    if debug or not known:
        traceback.print_exception(error)
    if isinstance(error, PartitaError):
        screen.fail(str(error), _as_data(error))
        return exits.USAGE if isinstance(error, Usage) else exits.NO
    if isinstance(error, OSError):
        screen.fail(f"{error.filename}: {error.strerror}", {"kind": type(error).__name__, "cause": str(error)})
        return exits.NO
    cause = f"{type(error).__name__}: {error}"
    screen.fail(
        f"{cause}\n  This is a fault in Partita: please report it with the lines above.",
        {"kind": "fault", "cause": cause},
    )
    return exits.FAULT


def _as_data(error: PartitaError) -> dict[str, str | None]:
    return {"kind": type(error).__name__, "cause": error.cause, "where": error.where, "remedy": error.remedy}


def _forget_stdout() -> None:
    """Discard output that is still to be written, since nobody reads it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _add_completion(parser: argparse.ArgumentParser) -> None:
    """Add --completion."""
    text = "print the completion for this shell, and exit (needs the extra `completion`)"
    parser.add_argument("--completion", action=Complete, choices=SHELLS, default=argparse.SUPPRESS, help=text)


_LEVELS = (logging.INFO, logging.DEBUG)
"""Minimum levels shown with -v, and with -vv."""


class _OnScreen(logging.Handler):
    """Prints each record as a line; the screen replaces control characters in a model's names."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self.screen.note(f"{record.name}: {record.getMessage()}")


@contextmanager
def _told(verbose: int, screen: Screen) -> Iterator[None]:
    """A context in which messages of the loggers are shown; without -v it does nothing."""
    if not verbose:
        yield
        return
    root, handler = logging.getLogger("partita"), _OnScreen(screen)
    before = root.level
    root.addHandler(handler)
    root.setLevel(_LEVELS[min(verbose, len(_LEVELS)) - 1])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
