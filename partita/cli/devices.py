"""List the devices that can run models here, why others cannot, and what to do about it.

With a NAME: that device's metrics and configuration keys."""

from __future__ import annotations

import argparse

import attrs

import partita as pt
from partita.cli import exits
from partita.cli.screen import Screen, table

EXAMPLE = """\
  partita devices
  partita devices cpu --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="show this device: its metrics and configuration keys")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show all devices, or one in detail."""
    if arguments.name is not None:
        return _one(arguments.name, screen)
    known = pt.devices()
    screen.write_json({"devices": [attrs.asdict(device) for device in known]})
    rows = [(device.name, "yes" if device.usable else "no", device.detail, device.source) for device in known]
    screen.show(table("devices", ("device", "usable", "what it is, or why not", "from"), rows))
    return exits.OK


def _one(name: str, screen: Screen) -> int:
    device = pt.accelerator(name)
    metrics = {
        key: device.get_metric(key)
        for key in device.get_metric("SUPPORTED_METRICS")
        if key != "SUPPORTED_METRICS"
    }
    config = {key: device.get_config(key) for key in metrics.pop("SUPPORTED_CONFIG_KEYS")}
    screen.write_json({"device": name, "metrics": metrics, "config": config})
    screen.show(
        table(f"metrics of {name}", ("metric", "value"), metrics.items()),
        table("configuration: --config KEY=VALUE", ("key", "default"), config.items()),
    )
    return exits.OK
