"""Functions and modules that a compiler gets wrong easily: views, writes, aliases, odd numbers, weights that change."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch.nn import functional as F

Compile = Callable[[Any], Callable[..., Any]]

NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.5, -1.5, 2.5, 1e-40, -3.0])


GENERATOR = torch.Generator().manual_seed(0)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (3, 4)), generator=GENERATOR)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "view then write": (lambda x: (lambda y: (y[0].add_(1), y)[1])(torch.relu(x)), (x(),)),
    "write then view": (lambda x: (lambda y: (y.add_(1), y[0], y))(torch.relu(x)), (x(),)),
    "view, write, both returned": (lambda x: (lambda y: (lambda v: (v.mul_(2), y))(y[1]))(torch.exp(x)), (x(),)),
    "two views of a hidden value": (lambda x: (lambda y: (y[:2].relu(), y[1:].mul_(3)))(x + 1), (x(),)),
    "input written": (lambda x: (x.add_(1), x * 2)[1], (x(),)),
    "view of the input written": (lambda x: (x[:, 0].zero_(), torch.relu(x))[1], (x(),)),
    "input written between reads": (lambda x: (lambda a: (x.mul_(3), a + x)[1])(x * 1), (x(),)),
    "setitem on a fresh tensor": (lambda x: (lambda y: (y.__setitem__((slice(None), 0), 7.0), y)[1])(x * 2), (x(),)),
    "setitem by a mask": (lambda x: (lambda y: (y.__setitem__(y > 0, -1.0), y)[1])(x * 2), (x(),)),
    "index_put accumulated": (
        lambda x: torch.zeros(4).index_put((torch.tensor([0, 0, 3]),), x[:3, 0], accumulate=True), (x(),)),
    "inplace relu of a fresh tensor": (lambda x: F.relu(x + 1, inplace=True) - 1, (x(),)),
    "out= of a fresh tensor": (lambda x: (lambda y: (torch.add(x, 1, out=y), y)[1])(torch.empty_like(x)), (x(),)),
    "the input itself": (lambda x: x, (x(),)),
    "the input twice and its view": (lambda x: (x, x, x.t(), x + 0), (x(),)),
    "one value twice": (lambda x: (lambda y: (y, y))(x + 1), (x(),)),
    "expanded result": (lambda x: torch.relu(x[:1]).expand(3, 4), (x(),)),
    "expanded input": (lambda x: x + 1, (x(1, 4).expand(3, 4),)),
    "a slice as input": (lambda x: torch.relu(x) * 2, (x(6, 8)[::2, 1::2],)),
    "transposed input": (lambda x: x @ x.t(), (x(4, 3).t(),)),
    "two inputs that overlap": (lambda a, b: a * 2 + b, (lambda base: (base[:3], base[1:4]))(x(5, 2))),
    "one input written, the other its view": (lambda a, b: (a.add_(1), b * 2)[1], (lambda base: (base, base[1:]))(x(5, 2))),
    "no element": (lambda x: (torch.relu(x), x.sum(), torch.cat([x, x])), (x(0, 4),)),
    "mean of nothing": (lambda x: (x.mean(), x.prod(), x.sum(0)), (x(0, 4),)),
    "odd numbers through functions": (
        lambda x: (torch.relu(x), torch.sign(x), x.abs(), -x, torch.sigmoid(x), torch.tanh(x), x.clamp(-1, 1)),
        (ODD,)),
    "odd numbers rounded": (lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), torch.frac(x)), (ODD,)),
    "odd numbers in maxima": (lambda x: (torch.maximum(x, x.flip(0)), x.max(), torch.minimum(x, x * 0), x.amax(0)), (ODD,)),
    "odd numbers compared": (lambda x: (x == x, x > 0, x.isnan(), x.isinf(), torch.where(x < 0, x, -x)), (ODD,)),
    "odd numbers divided": (lambda x: (1 / x, x / 0.0, x % 2, torch.fmod(x, 2)), (ODD,)),
    "minus zero": (lambda x: (1 / (x * 0.0), 1 / (x * -0.0), torch.copysign(x, torch.tensor(-0.0))), (torch.ones(3),)),
    "nan_to_num": (lambda x: (torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, 3.0)), (ODD,)),
    "softmax of minus infinities": (lambda x: torch.softmax(x, -1), (torch.tensor([[-INF, -INF], [0.0, -INF]]),)),
    "sorted with NaN": (lambda x: (x.sort().values, x.argmax(), x.topk(3).values), (ODD,)),
    "integers and floats": (lambda a, b: (a + b, a * 2.5, a / 2, a // 2, a - b), (torch.arange(6), x(6))),
    "bytes that overflow": (lambda x: (x + x, x * 2, -x, x.sum(), x // 3), (torch.tensor([200, 255, 1], dtype=torch.uint8),)),
    "negative integers divided": (
        lambda x: (x // 2, x % 3, torch.div(x, 2, rounding_mode="trunc"), torch.fmod(x, 3), x >> 1), (torch.arange(-5, 5),)),
    "booleans": (
        lambda x: (x & ~x, x | x.flip(0), x ^ x, x.sum(), x.any(), x.all(), x + x), (torch.tensor([True, False, True]),)),
    "float64 and float32": (lambda a, b: (a + b, torch.cat([a, b]), a.to(b.dtype)), (x(3), x(3).double())),
    "half": (lambda x: (x * 1.1, x.sum(), torch.softmax(x, 0), x.float() + x), (x(8).half(),)),
    "a number of no dimensions": (lambda x: (x + 1, x.reshape(1), x.expand(2), torch.stack([x, x])), (torch.tensor(2.0),)),
    "complex numbers between": (lambda x: torch.fft.ifft(torch.fft.fft(torch.relu(x)) * 2).real + 1, (x(4, 8),)),
    "complex input": (lambda x: (x * x.conj()).real.sum(), (torch.randn(4, dtype=torch.complex64),)),
    "gather with negative indices": (lambda x, i: (x[i], x[:, i[:2]], x[-1], x[..., -2:]), (x(4, 4), torch.tensor([-1, 0, -4]))),
    "mixed indices": (
        lambda x: (x[torch.tensor([0, 2]), :, torch.tensor([1, 1])], x[:, None, [0, 2]], x[x[:, 0, 0] > -9]), (x(3, 4, 5),)),
    "scatter": (
        lambda x, i: (x.scatter(1, i, 9.0), x.scatter_add(1, i, x), x.scatter_reduce(1, i, x, "amax", include_self=False)),
        (x(3, 4), torch.tensor([[0, 1, 1, 3]] * 3))),
    "nonzero": (lambda x: (x.nonzero(), x[x > 0], torch.masked_select(x, x < 0)), (x(),)),
    "unique": (lambda x: torch.unique(x, return_counts=True), (torch.tensor([3, 1, 3, 2, 1]),)),
    "control flow on a value": (lambda x: x.relu() if x.sum() > 0 else x.neg() * 2, (x(),)),
    "a number out of a tensor": (lambda x: x * x.max().item() + int(x.sum()), (x(),)),
    "a loop over rows": (lambda x: torch.stack([row * i for i, row in enumerate(x)]), (x(),)),
    "nested containers": (
        lambda d: {"a": [d["p"] + 1, (d["q"][0] * 2, None)], "n": 3, "s": "t"}, ({"p": x(), "q": [x(2), None]},)),
    "None and constants as results": (lambda x: (None, x + 1, 5, "text", None, True), (x(),)),
    "no tensor is computed": (lambda x: (x.shape, x.dtype, x.dim()), (x(),)),
    "a constant result": (lambda x: (torch.ones(2, 3), torch.arange(4), x.new_zeros(3)), (x(),)),
    "a number as argument": (lambda x, s: (x * s, x + s, x ** s), (x().abs() + 1, 2)),
    "autocast": (lambda x: torch.autocast("cpu", torch.bfloat16)(lambda y: y @ y.t())(x), (x(),)),
    "gradients inside": (lambda x: torch.func.grad(lambda y: (y ** 3).sum())(x), (x(),)),
    "vmap": (lambda x: torch.vmap(lambda row: row.cumsum(0) * row.sum())(x), (x(),)),
    "average pool with a divisor": (lambda x: F.avg_pool2d(x, 3, divisor_override=5), (x(1, 2, 6, 6),)),
    "average pool with padding": (
        lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        (x(1, 2, 6, 6),)),
    "max pool with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (x(1, 2, 6, 6),)),
    "aligned corners": (
        lambda x: (F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
                   F.interpolate(x, scale_factor=0.6, mode="bicubic", align_corners=True)), (x(1, 2, 6, 7),)),
    "interpolation by odd factors": (
        lambda x: (F.interpolate(x, scale_factor=1.7, mode="bilinear"), F.interpolate(x, scale_factor=1.7),
                   F.interpolate(x, size=(5, 9)),
                   F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)), (x(1, 2, 6, 7),)),
    "antialiased": (lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True), (x(1, 2, 6, 7),)),
    "paddings": (
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 1), mode="reflect"), F.pad(x, (-1, 1)), F.pad(x, (2, 1), "circular")),
        (x(1, 3, 5),)),
    "statistics": (
        lambda x: (x.std(), x.var(0, correction=0), x.median(), x.logsumexp(1), x.norm(p=1, dim=0), x.cumprod(1)), (x(),)),
    "rolled and flipped": (lambda x: (x.roll(1, 0), x.flip(1), x.rot90(), x.tril(-1), x.diagonal(), x.unfold(1, 2, 1)), (x(),)),
    "strided": (lambda x: torch.as_strided(torch.relu(x), (2, 2), (1, 2)), (x(),)),
    "a view as another type": (lambda x: (x + 0).view(torch.int32), (x(),)),
    "einsum": (
        lambda a, b: (torch.einsum("ij,kj->ik", a, b), torch.einsum("ii->i", a @ a.t()).clone(), torch.einsum("ij->", a)),
        (x(), x())),
    "causal attention of unequal lengths": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (x(1, 2, 3, 4), x(1, 2, 5, 4))),
    "a bag of embeddings": (lambda i, w: F.embedding_bag(i, w, mode="mean"), (torch.tensor([[0, 2], [1, 1]]), x(4, 3))),
    "one hot": (
        lambda i: (F.one_hot(i, 5), torch.bincount(i, minlength=6), torch.histc(i.float(), 4, 0, 4)), (torch.tensor([0, 3, 3]),)),
    "bucketed": (
        lambda x: (torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), torch.searchsorted(torch.arange(5.0), x)), (x(),)),
    "channels last": (
        lambda x, w: (F.conv2d(x, w), F.conv2d(x, w).contiguous().view(-1)),
        (x(1, 3, 6, 6).to(memory_format=torch.channels_last), x(4, 3, 3, 3))),
    "halves of a hidden value": (
        lambda x: (lambda y: (y.chunk(2, 1)[0].clone(), y.chunk(2, 1)[1].add_(1).clone()))(torch.relu(x)), (x(),)),
    "large integers": (
        lambda x: (x + 1, x * 3, x.float().long(), x // 7, x % 1000), (torch.tensor([2**53 + 1, -(2**62), 2**31]),)),
    "a random op": (lambda x: (torch.manual_seed(3), x + torch.rand(3, 4))[1], (x(),)),
}
"""Each with what it is called with."""


def linear() -> torch.nn.Module:
    """A layer whose weights are large enough that kernels keep them in a layout of their own."""
    return torch.nn.Linear(32, 32).eval()


def trained(step: Callable[[torch.nn.Module], Callable[[], Any]]) -> Callable[[Compile], list[tuple[Any, Any]]]:
    """Calls before, between and after steps of an optimizer."""

    def case(compile: Compile) -> list[tuple[Any, Any]]:
        module, given = linear(), x(2, 32)
        call, update = compile(module), step(module)
        pairs = [(call(given), module(given))]
        for _ in range(2):
            with torch.enable_grad():
                module(given).square().sum().backward()
            update()
            pairs.append((call(given), module(given)))
        return pairs

    return case


def changed(change: Callable[[torch.nn.Module], Any], make: Callable[[], torch.nn.Module] = linear) -> Any:
    """A call before a module was changed, and one after."""

    def case(compile: Compile) -> list[tuple[Any, Any]]:
        module, given = make(), x(2, 32)
        call = compile(module)
        before = call(given), module(given)
        change(module)
        return [before, (call(given), module(given))]

    return case


def flat(write: Callable[[torch.Tensor], Any]) -> Any:
    """Weights that are views of one flat tensor, which is written to."""

    def case(compile: Compile) -> list[tuple[Any, Any]]:
        module, given = linear(), x(2, 32)
        weights = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        for p, part in zip(module.parameters(), weights.split([p.numel() for p in module.parameters()]), strict=True):
            p.data = part.view_as(p)
        call = compile(module)
        before = call(given), module(given)
        write(weights)
        return [before, (call(given), module(given))]

    return case


def fused_step(weights: torch.Tensor) -> None:
    flat_parameter = torch.nn.Parameter(weights)
    flat_parameter.grad = torch.ones_like(weights)
    torch.optim.SGD([flat_parameter], 0.1, fused=True).step()


def optimizer(kind: str, **options: Any) -> Any:
    return trained(lambda module: getattr(torch.optim, kind)(module.parameters(), lr=0.1, **options).step)


def by_data(module: torch.nn.Module) -> Callable[[], None]:
    def step() -> None:
        for p in module.parameters():
            p.data.add_(p.grad, alpha=-0.1)

    return step


def tied() -> torch.nn.Module:
    module = torch.nn.Sequential(linear(), torch.nn.ReLU(), linear())
    module[2].weight = module[0].weight
    return module.eval()


class Buffered(torch.nn.Module):
    """A buffer that counts the calls, another that a user replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((32,), 2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.relu(given * self.scale) + self.calls.clone()


def two_of_a_kind(compile: Compile) -> list[tuple[Any, Any]]:
    """A buffer that is written to in each call, in a module and in its copy."""
    module = Buffered()
    other, given = deepcopy(module), x(2, 32)
    call = compile(module)
    return [(call(given), other(given)) for _ in range(3)]


def numbers(compile: Compile) -> list[tuple[Any, Any]]:
    """Numbers that Python takes for equal, in turn."""

    def scaled(given: torch.Tensor, number: float) -> torch.Tensor:
        return given / (given * number)

    call, given = compile(scaled), torch.ones(3)
    return [(call(given, n), scaled(given, n)) for n in (1.5, 2.5, 0.0, -0.0, 0.0, 1, 1.0, True, NAN, INF, -INF)]


def copied(compile: Compile) -> list[tuple[Any, Any]]:
    """A module and its deep copy, of which one changes."""
    module, given = linear(), x(2, 32)
    call = compile(module)
    first = call(given), module(given)
    other = deepcopy(module)
    other.weight.mul_(2)
    again = compile(other)
    return [first, (again(given), other(given)), (call(given), module(given))]


def functional(compile: Compile) -> list[tuple[Any, Any]]:
    """Other weights by torch.func.functional_call."""
    module, given = linear(), x(2, 32)

    def called(weights: dict[str, torch.Tensor], given: torch.Tensor) -> Any:
        return torch.func.functional_call(module, weights, (given,))

    call = compile(called)
    sets = [{name: value.detach() * k for name, value in module.named_parameters()} for k in (1, 2, 3)]
    return [(call(weights, given), called(weights, given)) for weights in sets]


def result_written(compile: Compile) -> list[tuple[Any, Any]]:
    """A result that the caller writes to, among them a constant, must not show in the next call."""

    def function(given: torch.Tensor) -> Any:
        return torch.ones(2, 3), torch.relu(given)

    call, given = compile(function), x()
    for result in call(given):
        result.add_(5)
    return [(call(given), function(given))]


def hooked(compile: Compile) -> list[tuple[Any, Any]]:
    """A forward hook. torch does not look for hooks that are added after the first call."""
    module, given = linear(), x(2, 32)
    module.register_forward_hook(lambda module, arguments, result: result * 2)
    call = compile(module)
    return [(call(given), module(given))]


def sizes(compile: Compile) -> list[tuple[Any, Any]]:
    """Sizes that change from call to call, among them 0 and 1."""

    def function(given: torch.Tensor) -> Any:
        return given.relu(), given.shape[0] * 2 + 1, given.new_ones(given.shape[0]), given[1:].sum()

    call = compile(function)
    return [(call(given), function(given)) for given in (x(n, 4) for n in (3, 5, 1, 0, 7, 3))]


def statistics(compile: Compile) -> list[tuple[Any, Any]]:
    """An instance norm that counts in training."""
    module = torch.nn.InstanceNorm1d(3, track_running_stats=True)
    other, given = deepcopy(module), x(2, 3, 5)
    return [(compile(module)(given), other(given)), (module.running_mean, other.running_mean)]


def modes(compile: Compile) -> list[tuple[Any, Any]]:
    """Dropout and batch norm in evaluation, training, and evaluation again."""
    module = torch.nn.Sequential(linear(), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.0)).eval()
    other, given = deepcopy(module), x(8, 32)
    call = compile(module)
    pairs = [(call(given), other(given))]
    for training in (True, False):
        module.train(training), other.train(training)
        pairs.append((call(given), other(given)))
    return [*pairs, (module[1].running_mean, other[1].running_mean)]


SCENARIOS: dict[str, Callable[[Compile], list[tuple[Any, Any]]]] = {
    **{f"{kind} {options}": optimizer(kind, **options) for kind, options in (
        ("SGD", {"momentum": 0.9}), ("SGD", {"fused": True}), ("Adam", {}), ("Adam", {"fused": True}),
        ("AdamW", {"foreach": True}), ("Adagrad", {"fused": True}), ("RMSprop", {}))},
    "a step written by hand through .data": trained(by_data),
    "weights in one flat tensor that is scaled": flat(lambda weights: weights.mul_(2)),
    "weights in one flat tensor, one element": flat(lambda weights: weights[-1:].fill_(9.0)),
    "weights in one flat tensor, a fused step": flat(fused_step),
    "weights swapped": changed(lambda module: torch.utils.swap_tensors(module.weight, torch.nn.Parameter(x(32, 32)))),
    "a state dict loaded": changed(lambda module: module.load_state_dict(linear().state_dict())),
    "a state dict assigned": changed(lambda module: module.load_state_dict(linear().state_dict(), assign=True)),
    "a parameter replaced": changed(lambda module: setattr(module, "weight", torch.nn.Parameter(x(32, 32)))),
    "a parameter transposed in place": changed(lambda module: setattr(module.weight, "data", module.weight.data.t())),
    "weights scaled through .data": changed(lambda module: module.weight.data.mul_(2)),
    "weights written through numpy": changed(lambda module: module.weight.detach().numpy().__imul__(2)),
    "tied weights scaled": changed(lambda module: module[2].weight.mul_(2), tied),
    "tied weights untied": changed(lambda module: setattr(module[2], "weight", torch.nn.Parameter(x(32, 32))), tied),
    "a layer replaced": changed(
        lambda module: setattr(module, "0", torch.nn.Tanh()), lambda: torch.nn.Sequential(torch.nn.ReLU())),
    "a module made double and float again": changed(lambda module: module.double().float()),
    "a buffer that counts": two_of_a_kind,
    "numbers": numbers,
    "a deep copy": copied,
    "functional calls": functional,
    "results written to": result_written,
    "a hook": hooked,
    "sizes": sizes,
    "training and evaluation": modes,
    "statistics of an instance norm": statistics,
}
"""Each returns what the compiled calls return, beside what eager ones return."""


def unlike(result: Any, wanted: Any) -> str | None:
    """The first difference between two results; None if they are alike, NaN, types and strides included."""
    if isinstance(wanted, dict):
        wanted, result = list(wanted.items()), list(result.items())
    if isinstance(wanted, (tuple, list)):
        if not isinstance(result, (tuple, list)) or len(result) != len(wanted):
            return f"{result!r} and not {wanted!r}"
        return next(filter(None, map(unlike, result, wanted)), None)
    if not isinstance(wanted, torch.Tensor):
        return None if type(result) is type(wanted) and result == wanted else f"{result!r} and not {wanted!r}"
    layout, wanted_layout = ((tensor.dtype, tuple(tensor.shape), tensor.stride()) for tensor in (result, wanted))
    if layout != wanted_layout:
        return f"{layout} and not {wanted_layout}"
    bound = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(wanted.dtype, 1e-5)
    if not torch.allclose(result, wanted, bound, bound, equal_nan=True):
        return f"{result} and not {wanted}"
    return None


def difference(case: tuple[Callable[..., Any], tuple[Any, ...]], compile: Compile) -> str | None:
    """The first difference between a function and its compiled form, in results, shared memory, and inputs afterwards."""
    function, inputs = case
    call = compile(function)
    for _ in range(2):
        given, wanted_given = deepcopy(inputs), deepcopy(inputs)
        result, wanted = call(*given), function(*wanted_given)
        problem = unlike(result, wanted) or unlike(given, wanted_given)
        if problem is None and shared((result, given)) != shared((wanted, wanted_given)):
            problem = "results share memory with others"
        if problem is not None:
            return problem
    return None


def shared(values: Any) -> list[int]:
    """For each tensor the number of the first one with the same memory."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    memories = [tensor.untyped_storage().data_ptr() or -k for k, tensor in enumerate(tensors)]
    return [memories.index(memory) for memory in memories]
