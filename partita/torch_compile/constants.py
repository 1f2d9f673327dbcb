"""The user's parameters and buffers that are constants of a compiled model, and detection of their changes and their end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

import attrs

if TYPE_CHECKING:
    import torch

SAMPLES = 16
"""Number of elements of each tensor compared in each call, since `.data` and foreign code bypass torch's version counter."""

WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""Integer types for comparing elements, by size in bytes."""


@attrs.define(eq=False)
class Holder:
    """The one reference to a tensor that all compiled models share, so that references from elsewhere can be counted.

    Weak references would break `torch.utils.swap_tensors`, which torch may use to load and move modules."""

    tensor: torch.Tensor

    @property
    def is_gone(self) -> bool:
        """True if nothing but this object refers to the tensor; the call of `getrefcount` is the second reference."""
        return sys.getrefcount(self.tensor) <= 2 and self.tensor._use_count() == 1


_HOLDERS: WeakValueDictionary[int, Holder] = WeakValueDictionary()
"""The holder of each tensor, by the tensor's id."""


@attrs.define(eq=False)
class Constants:
    """Parameters and buffers that are constants of one compiled model, as they were when it was compiled."""

    holders: tuple[Holder, ...]
    identities: list[int]
    versions: tuple[list[int], list[int]]
    storages: frozenset[int]
    """Addresses of their storages."""
    samples: list[torch.Tensor]
    """Views of a few elements of each."""
    sampled: torch.Tensor | None
    """A copy of the samples; None if there are none."""
    is_written: bool = False
    """True after an optimizer step that may have written to one."""

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> Constants:
        """These tensors in their current state."""
        import torch

        _watch_optimizers()
        samples = [_sample(tensor) for tensor in tensors if tensor.numel()]
        constants = cls(
            tuple(map(_holder, tensors)),
            list(map(id, tensors)),
            _versions(tensors),
            frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors),
            samples,
            torch.cat(samples) if samples else None,
        )
        _LIVE.add(constants)
        return constants

    def are(self, tensors: Sequence[torch.Tensor]) -> bool:
        """True if these are the tensors, and none was written to since."""
        import torch

        return (
            not self.is_written
            and list(map(id, tensors)) == self.identities
            and _versions(tensors) == self.versions
            and (self.sampled is None or torch.equal(torch.cat(self.samples), self.sampled))
        )

    @property
    def are_gone(self) -> bool:
        """True if one of them has no other reference, so that no call can come with it."""
        return any(holder.is_gone for holder in self.holders)


_LIVE: WeakSet[Constants] = WeakSet()


def is_constant(value: Any) -> bool:
    """True for a parameter or buffer of the user's module whose changes can all be detected. torch does not count changes under
    inference_mode, and may not count for a view what is written to a larger tensor, say one that holds all weights."""
    import torch

    is_static = isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None
    if not is_static or value.layout is not torch.strided or value.is_inference():
        return False
    return bool(value.untyped_storage().nbytes() <= value.numel() * value.element_size())


def _holder(tensor: torch.Tensor) -> Holder:
    holder = _HOLDERS.get(id(tensor))
    if holder is None or holder.tensor is not tensor:
        _HOLDERS[id(tensor)] = holder = Holder(tensor)
    return holder


def _versions(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[int]]:
    """Version counter of each of the tensors, and the addresses of their elements, which `.data = ` changes."""
    return [tensor._version for tensor in tensors], [tensor.data_ptr() for tensor in tensors]


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Elements spread evenly over the tensor's memory, as integers, so that NaN and -0.0 are compared too."""
    import torch

    plain = torch.empty(0, dtype=tensor.dtype, device="cpu").set_(tensor.detach().untyped_storage())
    words = plain.view(getattr(torch, WORDS[tensor.element_size()]))
    return words[:: max(1, -(-words.numel() // SAMPLES))]


@cache
def _watch_optimizers() -> None:
    """Get notified of each step of torch's optimizers: fused ones write to parameters without the version counter."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    plain = [p for p in parameters if type(p) in (torch.Tensor, torch.nn.Parameter) and p.layout is torch.strided]
    written = {p.untyped_storage().data_ptr() for p in plain}
    for constants in list(_LIVE):
        if not constants.storages.isdisjoint(written):
            constants.is_written = True
