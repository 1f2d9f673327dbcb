"""Plugins that fail: one raises, one is not an accelerator, one lacks its driver."""

import partita as pt


class Raising(pt.Accelerator):
    name = "raising"

    def __init__(self):
        raise ZeroDivisionError("this plugin divides by zero")


class Foreign:
    name = "foreign"


class Driverless(pt.Accelerator):
    name = "driverless"

    def __init__(self):
        raise pt.AcceleratorUnavailable("no driver of the echo card is loaded", remedy="Install echo-driver 2 or newer")
