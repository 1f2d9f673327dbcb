"""Options that several verbs share, and parsers of their values."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from partita.accelerators import AcceleratorUnavailable, accelerator
from partita.accelerators.interface.device_list import DEFAULT, asked_devices
from partita.accelerators.interface.habits import meant_key
from partita.accelerators.interface.settings import HETERO_KEYS, with_key
from partita.cli.inputs import NORMALIZE
from partita.compare import PRECISIONS
from partita.graph.errors import PartitaError, did_you_mean
from partita.graph.types import Dim

NEVER = "never"
"""Value of --fail-on for no condition."""


class Usage(PartitaError):
    """Error for options that do not go together."""


def add_model(parser: argparse.ArgumentParser, package: bool = False) -> None:
    """MODEL, and options for reading it."""
    other = ", zoo:NAME, or a file that `compile` wrote" if package else ", or zoo:NAME"
    kinds = f'an ONNX file, an MXNet "-symbol.json"{other}'
    parser.add_argument("model", metavar="MODEL", help=kinds)
    group = parser.add_argument_group("reading the model")
    add_repeated(group, "--shape", shape, "NAME=SIZES", "the shape of an input, like x=1,3,224,224; again for each input")
    group.add_argument("--params", metavar="FILE", help="the parameter file of an MXNet symbol")
    group.add_argument("--inline", action="store_true", help="inline calls and drop affinities first")
    group.add_argument(
        "--optimize", action="store_true", help="run the default passes first (folding, batch norms, ...)"
    )
    group.add_argument(
        "--strict", action="store_true", help="fail on deviations from ONNX, and if a device cannot compile what it took"
    )
    if package:
        group.add_argument("--key", metavar="FILE", help="verify the compiled model's signature with the bytes of this file")


def add_devices(parser: argparse.ArgumentParser, precision: bool = False, default: str = DEFAULT) -> None:
    """The devices and their configuration; for verbs that run models also the precision."""
    group = parser.add_argument_group("devices")
    group.add_argument("--devices", metavar="D", help=f"a device, or HETERO:first,second (default: {default})")
    add_placing(group)
    text = "set a key of one device (cpu.NUM_THREADS=2), or of all that have it (NUM_THREADS=2)"
    add_repeated(group, "--config", setting, "KEY=VALUE", text)
    if precision:
        text = "the PRECISION of every device that has this key (default: the model's own types)"
        group.add_argument("--precision", choices=tuple(PRECISIONS), help=text)


def add_provider(group: argparse._ArgumentGroup) -> None:
    """The library of an execution provider of onnxruntime, and its options."""
    group.add_argument("--ep-library", metavar="FILE", help="the provider's library, if onnxruntime was not built with it")
    group.add_argument("--ep-package", metavar="NAME", help="the provider's installed package, like onnxruntime_ep_openvino")
    add_repeated(group, "--ep-option", setting, "KEY=VALUE", "an option of the provider; again for each")


def provider_config(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The configuration of the device `onnxruntime` with this provider; an error if it cannot be used."""
    config = {"EP_NAME": name, **{key: value for key, value in given.items() if value}}
    device = accelerator("onnxruntime")
    reason = device.why_not_here(device.full_config(config))
    if reason is not None:
        where = f"provider {name!r} of onnxruntime"
        raise AcceleratorUnavailable(reason, where=where, remedy="`partita devices` lists the providers")
    return config


def add_fail_on(group: argparse._ArgumentGroup, conditions: Mapping[str, str], default: str) -> None:
    """The conditions that make the exit status 1."""

    def listed(text: str) -> list[tuple[str, float]]:
        return [] if text == NEVER else [_condition(part, conditions) for part in names(text)]

    about = "; ".join(f"{name}: {what}" for name, what in conditions.items())
    action = group.add_argument(
        "--fail-on",
        type=listed,
        default=listed(default),
        metavar="WHAT",
        help=f"exit with status 1 if one of these, separated by commas, holds ({about}), or {NEVER} (default: {default})",
    )
    action.words = [*(name.partition("=")[0] for name in conditions), NEVER]  # type: ignore[attr-defined]  # for the shell's completion


def _condition(text: str, conditions: Mapping[str, str]) -> tuple[str, float]:
    """The condition of that name, and its number: `slower=1.1` is listed as `slower=X`."""
    word, equals, number = text.partition("=")
    takes_number = {name.partition("=")[0]: "=" in name for name in conditions}
    if word not in takes_number:
        near = did_you_mean(word, takes_number) or f"there are {', '.join(takes_number)}"
        raise argparse.ArgumentTypeError(f"{word!r} is not a condition for --fail-on: {near}")
    if equals and not takes_number[word]:
        raise argparse.ArgumentTypeError(f"{word!r} takes no number")
    try:
        return word, positive(number) if equals else 1.0
    except ValueError:
        raise argparse.ArgumentTypeError(f"{number!r} is not a number: write {word}=1.1") from None


def add_placing(group: argparse._ArgumentGroup) -> None:
    """Rules that come before the priority of the devices."""
    add_repeated(group, "--pin", pair, "NAMES=D", "place on D the nodes whose whole name matches this regular expression")
    add_repeated(group, "--forbid", pair, "OP=D", "never place this op, or nodes whose whole name matches, on D")


def add_plan(group: argparse._ArgumentGroup, name: str = "--plan", whose: str = "") -> None:
    """A locked plan, which the model is compiled by."""
    group.add_argument(name, metavar="PLAN.json", help=f"the placement{whose} that `partita place --lock` wrote")


def limit(text: str) -> tuple[str, str]:
    """Parse DEVICE=SIZE."""
    device, equals, size = text.rpartition("=")
    if not equals or not device or not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit: write DEVICE=22GiB")
    return device, size


def add_inputs(group: argparse._ArgumentGroup) -> None:
    """Options for the model's inputs."""
    add_repeated(group, "--input", str, "[NAME=]FILE", "a .npy, .npz (arrays by name) or image file; again for each input")
    group.add_argument(
        "--normalize",
        choices=NORMALIZE,
        default=NORMALIZE[0],
        help="how an image is normalized (default: %(default)s)",
    )
    add_count(group, "--seed", 0, "the seed of generated inputs", 0)


def add_count(group: argparse._ActionsContainer, name: str, least: int, text: str, default: int | None = None) -> None:
    """An option for an integer with a minimum; the help states its default, if there is one."""
    stated = "" if default is None else " (default: %(default)s)"
    group.add_argument(name, type=at_least(least), default=default, metavar="N", help=text + stated)


def add_repeated(
    group: argparse._ArgumentGroup, name: str, kind: Callable[[str], Any], metavar: str, text: str
) -> None:
    """An option that may be given several times."""
    group.add_argument(name, action="append", type=kind, default=[], metavar=metavar, help=text)


def shape(text: str) -> tuple[str, tuple[Dim, ...]]:
    """NAME=1,3,224,224; a size that is not a number is a symbol."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape: write NAME=1,3,224,224")
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty size: write NAME=1,3,224,224")
    return name, tuple(int(part) if part.lstrip("-").isdigit() else part for part in parts)


def setting(text: str) -> tuple[str, str, Any]:
    """[DEVICE.]KEY=VALUE; the value is parsed as JSON if possible, and is text otherwise."""
    path, equals, value = text.partition("=")
    device, _, key = path.rpartition(".")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: write KEY=VALUE or DEVICE.KEY=VALUE")
    try:
        return device, key, json.loads(value)
    except ValueError:
        return device, key, value


def pair(text: str) -> tuple[str, str]:
    """Parse NAMES=DEVICE."""
    names, equals, device = text.rpartition("=")
    if not equals or not names or not device:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rule: write NAMES=DEVICE")
    return names, device


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty")
    return parts


def at_least(least: int) -> Callable[[str], int]:
    """Parser for integers with a minimum."""

    def integer(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    return integer


def positive(text: str) -> float:
    """Parse a number above zero."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def config_of(settings: Iterable[tuple[str, str, Any]], devices: str | None = None) -> dict[str, Any]:
    """The configuration as `compile` takes it; KEY=VALUE is set for each device that has the key."""
    config: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for device, key, value in settings:
        (config.setdefault(device, {}) if device else shared)[key] = value
    if not shared:
        return config

    asked = {
        device.label: device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS")
        for device in asked_devices(devices)
    }
    for key, value in shared.items():
        having = [label for label, keys in asked.items() if key.removeprefix("KEY_") in keys]
        for label in having:
            config.setdefault(label, {}).setdefault(key, value)
        if key.removeprefix("KEY_") in HETERO_KEYS:
            config[key] = value
        elif not having:
            known = {known for keys in asked.values() for known in keys} | set(HETERO_KEYS)
            remedy = meant_key(key, known) or f"There are {', '.join(sorted(known))}"
            raise Usage(f"{', '.join(asked)}: no such setting as {key!r}", remedy=remedy)
    return config


def precise(config: Mapping[str, Any], devices: str | None, precision: str | None) -> dict[str, Any]:
    """The configuration with --precision; an error if no device offers one."""
    if precision is None:
        return dict(config)

    extended = with_key(config, devices, "PRECISION", precision)
    if extended == config:
        raise Usage(
            f"none of the devices offers a PRECISION: {devices or DEFAULT}",
            remedy="`partita devices NAME` lists the keys of a device",
        )
    return extended


def placing_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords `pin` and `forbid`."""
    forbidden: dict[str, list[str]] = {}
    for key, device in arguments.forbid:
        forbidden.setdefault(key, []).append(device)
    return {"pin": dict(arguments.pin), "forbid": forbidden}
