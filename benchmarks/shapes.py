"""Named topologies on integers, for tests and measurements: each function gives (preds, color).

Nodes are 0..n-1 in topological order, preds[v] lists the producers of v, and color[v] is its device, or None where no
device takes it. Everything is a function of its arguments: random shapes have a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Shape = tuple[list[list[int]], list[int | None]]


def hole(v: int, every: int = 7) -> int | None:
    """Device 0, but for the last of each `every` nodes."""
    return None if v % every == every - 1 else 0


def chain(n: int) -> Shape:
    return _line(n), [0] * n


def alternating_chain(n: int) -> Shape:
    """Two devices in turn: nothing can be grouped."""
    return _line(n), [v % 2 for v in range(n)]


def residual(n: int, holes: bool = False) -> Shape:
    """A chain of blocks of five ops; the last one adds what the block began with."""
    preds: list[list[int]] = []
    start = -1
    while len(preds) < n:
        block = min(5, n - len(preds))
        for k in range(block):
            v = len(preds)
            skip = [start] if k == 4 and not (holes and hole(v) is None) else []
            preds.append([u for u in [v - 1, *skip] if u >= 0])
        start = len(preds) - 1
    return preds, [hole(v) if holes else 0 for v in range(n)]


def residual_with_holes(n: int) -> Shape:
    """The same with every seventh op unsupported."""
    return residual(n, holes=True)


def residual_few_holes(n: int) -> Shape:
    """The blocks, every hundredth op unsupported: a network of which an accelerator lacks an op or two."""
    return residual(n)[0], [hole(v, 100) for v in range(n)]


def layered(
    n: int, width: int = 32, fan_in: int = 2, devices: int = 1, hosts: float = 0.5, far: float = 0.0, seed: int = 4
) -> Shape:
    """Layers of `width` nodes, each fed by random nodes of the layer before; some with a skip from anywhere (`far`)."""
    rng = random.Random(seed)
    preds: list[list[int]] = [[] for _ in range(min(width, n))]
    while len(preds) < n:
        layer = len(preds) // width * width
        producers = {layer - width + rng.randrange(width) for _ in range(fan_in)}
        if rng.random() < far:
            producers.add(rng.randrange(layer))
        preds.append(sorted(producers))
    return preds, [None if rng.random() < hosts else rng.randrange(devices) for _ in preds]


def layered_every_seventh_elsewhere(n: int = 1_000) -> Shape:
    """Width 32, fan-in 2, two devices: every seventh node is on the second."""
    preds, _ = layered(n, seed=0)
    return preds, [int(v % 7 == 6) for v in range(n)]


def dense_layered(n: int) -> Shape:
    return layered(n, fan_in=8)


def shared_feeder(n: int) -> Shape:
    """One unsupported node feeds every later add."""
    return [[], *([v - 1, 0] if v > 1 else [0] for v in range(1, n))], [None, *[0] * (n - 1)]


def shared_mask(n: int) -> Shape:
    """One supported node feeds every later add; every seventh add is unsupported."""
    return [[], [], *([v - 1, 0] for v in range(2, n))], [0, 0, *(hole(v) for v in range(2, n))]


def many_masks(n: int) -> Shape:
    """A chain whose nodes read one of many masks in turn."""
    masks = max(2, int(n**0.5))
    preds: list[list[int]] = [[] if v < masks else [v - 1, v % masks] for v in range(n)]
    return preds, [0 if v < masks else hole(v) for v in range(n)]


def ladder(n: int, reach: int = 4) -> Shape:
    """A chain of adds; each also feeds an unsupported tap, which the add `reach` steps on reads."""
    preds: list[list[int]] = [[]]
    color: list[int | None] = [0]
    adds = [0]
    while len(preds) < n - 1:
        tap = [adds[-reach] + 1] if len(adds) >= reach else []
        preds += [[adds[-1]], [adds[-1], *tap]]
        color += [None, 0]
        adds.append(len(preds) - 1)
    return preds, color


def long_ladder(n: int) -> Shape:
    return ladder(n, max(4, int(n**0.5)))


def unet(n: int, every: int = 1) -> Shape:
    """Down and up again, with a skip between the two sides at every `every`-th level; holes on both sides."""
    half = n // 2
    up = [[half + i - 1, *([half - 1 - i] if i % every == 0 else [])] for i in range(half)]
    return _line(half) + up, [hole(i) for i in range(half)] + [hole(i, 11) for i in range(half)]


def unet_few_skips(n: int) -> Shape:
    return unet(n, 50)


def skips(n: int) -> Shape:
    """A chain in which each node also reads the one √n steps back; holes."""
    back = max(4, int(n**0.5))
    preds = [([v - 1] if v else []) + ([v - back] if v >= back else []) for v in range(n)]
    return preds, [hole(v) for v in range(n)]


def fan_out(n: int) -> Shape:
    """One node feeds all others, one reads them all; every third is unsupported."""
    preds: list[list[int]] = [[], *([0] for _ in range(n - 2)), list(range(1, n - 1))]
    return preds, [*(hole(v, 3) for v in range(n - 1)), 0]


def hub(n: int) -> Shape:
    """A chain with holes, each piece of which feeds one node with n / 2 consumers."""
    half = n // 2
    preds = [*_line(half), [v for v in range(half) if v % 7 == 1], *([half] for _ in range(n - half - 1))]
    return preds, [*(hole(v) for v in range(half)), *[0] * (n - half)]


def three_devices(n: int) -> Shape:
    return layered(n, devices=3, hosts=0)


def wide(n: int) -> Shape:
    return layered(n, width=1_000, devices=2, hosts=0.2)


def far_skips(n: int) -> Shape:
    """A third of the nodes have an edge from anywhere: growth takes longer than linear time here."""
    return layered(n, devices=2, hosts=0.1, far=0.3)


def _line(n: int) -> list[list[int]]:
    return [[v - 1] if v else [] for v in range(n)]


SHAPES: dict[str, Callable[[int], Shape]] = {
    "residual": residual,
    "holes": residual_with_holes,
    "few-holes": residual_few_holes,
    "random": layered,
    "chain": chain,
    "alternating": alternating_chain,
    "feeder": shared_feeder,
    "mask": shared_mask,
    "masks": many_masks,
    "ladder": ladder,
    "long-ladder": long_ladder,
    "unet": unet,
    "unet-few": unet_few_skips,
    "skips": skips,
    "fan-out": fan_out,
    "hub": hub,
    "dense": dense_layered,
    "three": three_devices,
    "wide": wide,
}
"""The shapes whose edges are local, or nearly so: growth is near-linear on each."""
