"""`torch.compile(module, backend="partita")` and torch's modules in `pt.compile`; `make check-all`, which has torch, runs it."""

from __future__ import annotations

import gc
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import partita as pt

if TYPE_CHECKING or find_spec("torch"):
    import torch

HOSTILE: Any = import_module("tests.torch_hostile") if find_spec("torch") else None
FUNCTIONS: Any = HOSTILE.FUNCTIONS | import_module("tests.torch_hostile_ops").FUNCTIONS if HOSTILE else {}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "onnxscript", "tvm"))), reason="needs torch, onnxscript and TVM"),
]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compiled(module: Any, **options: Any) -> Callable[..., Any]:
    from partita.torch_compile.backend import backend

    return torch.compile(module, backend=backend, **options)


def mlp() -> Any:
    layers = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(*layers).eval()


def same(result: Any, wanted: Any) -> bool:
    if isinstance(wanted, (tuple, list)):
        return len(result) == len(wanted) and all(map(same, result, wanted))
    if not isinstance(wanted, torch.Tensor):
        return bool(result == wanted)
    alike = result.dtype == wanted.dtype and result.shape == wanted.shape
    return alike and torch.allclose(result, wanted, atol=1e-5)


def messages(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "partita.torch")


def test_torch_finds_the_backend_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    (registered,) = [point for point in entry_points(group="torch_dynamo_backends") if point.name == "partita"]
    assert registered.value == "partita.torch_compile.backend:backend"


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_batches_of_any_size(dynamic: bool | None) -> None:
    module = mlp()
    call = compiled(module, dynamic=dynamic)
    for batch in (3, 5, 7, 3):
        x = torch.randn(batch, 8)
        assert same(call(x), module(x))


def test_results_may_be_sizes_and_inputs() -> None:
    def function(x: Any) -> Any:
        return torch.relu(x), x.shape[0], x, x.reshape(-1)

    call = compiled(function)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        assert same(call(x), function(x))


def test_a_graph_break_makes_several_graphs(caplog: pytest.LogCaptureFixture) -> None:
    class Branching(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: Any) -> Any:
            x = torch.relu(x - 0.1)
            return self.layers(x) if x.sum() > 0 else self.layers(-x)

    module = Branching().eval()
    caplog.set_level(logging.INFO, "partita.torch")
    call = compiled(module)
    x = torch.randn(4, 8)
    assert same(call(x), module(x)) and messages(caplog).count("was captured") == 2


def test_an_op_without_an_onnx_form_stays_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.before(x))
            values = torch.linalg.eigvals(y.T @ y).real.sort().values
            return torch.softmax(self.after(y) + values, -1)

    module = Mixed().eval()
    caplog.set_level(logging.INFO, "partita.torch")
    x = torch.randn(6, 6)
    assert torch.allclose(compiled(module)(x), module(x), atol=1e-4)
    assert "is cut into" in messages(caplog) and "linalg_eigvals" in messages(caplog)


def test_what_is_written_to_stays_in_torch() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x * self.count

    module = Counting()
    call = compiled(module)
    for number in (1.0, 2.0, 3.0):
        assert same(call(torch.ones(2)), torch.full((2,), number))


def eigenvalues(x: Any) -> Any:
    """What has no form in ONNX."""
    return torch.linalg.eigvals(x @ x.T).real.sort().values


def test_what_sets_a_mode_of_torchs_stays_in_torch(caplog: pytest.LogCaptureFixture) -> None:
    def with_gradients(x: Any) -> Any:
        with torch.enable_grad():
            y = torch.relu(x) * 2
            z = eigenvalues(y)
        return torch.exp(y) * z

    def by_row(x: Any) -> Any:
        return torch.vmap(lambda row: eigenvalues(torch.outer(row, row)).sum() + row * 2)(x) + 1

    caplog.set_level(logging.INFO, "partita.torch")
    x = torch.randn(3, 3)
    for function in (with_gradients, by_row):
        assert torch.allclose(on_reference(function)(x), function(x), atol=1e-4)
        assert not torch.is_grad_enabled()
    assert messages(caplog).count("sets a mode of torch's") == 2


def test_an_op_of_the_users_that_writes_stays_in_torch_with_what_it_writes_to() -> None:
    @torch.library.custom_op("partita_tests::raise_by_ten", mutates_args=("x",))
    def raise_by_ten(x: torch.Tensor) -> None:
        x.add_(10)

    def function(x: Any) -> Any:
        y = torch.relu(x) + 1
        torch.ops.partita_tests.raise_by_ten(x)
        return torch.sin(y) * x, torch.cos(x)

    x = torch.randn(3, 3)
    given = x.clone()
    assert same(on_reference(function)(given), function(x)) and same(given, x)


def test_batch_norm_in_training_updates_its_statistics() -> None:
    module = mlp().train()
    before = module[1].running_mean.clone()
    compiled(module)(torch.randn(16, 8))
    assert not torch.equal(module[1].running_mean, before)


def test_dropout_in_training_draws_torchs_numbers() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5)).train()
    call, x = compiled(module), torch.randn(64, 4)
    torch.manual_seed(1)
    result = call(x)
    torch.manual_seed(1)
    assert same(result, module(x))


def test_attention_without_dropout_is_no_random_op(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.0)

    caplog.set_level(logging.INFO, "partita.torch")
    x = torch.randn(1, 2, 5, 8)
    assert same(compiled(function)(x), function(x))
    assert "torch runs" not in messages(caplog) and "is cut" not in messages(caplog)


def test_gradients_are_torchs_and_a_warning_says_so() -> None:
    module = mlp()
    with torch.enable_grad(), pytest.warns(UserWarning, match=r"it needs gradients.*torch\.no_grad"):
        compiled(module)(torch.randn(4, 8)).sum().backward()
    assert module[0].weight.grad is not None


def test_a_changed_parameter_is_seen() -> None:
    module = mlp()
    call, x = compiled(module), torch.randn(4, 8)
    call(x)
    module[0].weight.mul_(2.0)
    assert same(call(x), module(x))


def test_parameters_are_shared_without_a_copy() -> None:
    from partita.torch_compile.captured import Captured
    from partita.torch_compile.exporting import export_graph

    weight = torch.nn.Parameter(torch.randn(64, 64))
    module = torch.fx.symbolic_trace(lambda x, weight: (torch.matmul(x, weight),))
    exported = export_graph(Captured.of(module), [torch.randn(2, 64), weight], dynamic=False)
    assert exported.graph is not None
    constants = [node.value for node in exported.graph.nodes if node.value is not None and node.value.size == 64 * 64]
    assert [array.ctypes.data for array in constants] == [weight.data_ptr()]


def test_bfloat16_and_inference_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval().bfloat16()
    with torch.inference_mode():
        x = torch.randn(2, 8).bfloat16()
        assert torch.allclose(compiled(module)(x).float(), module(x).float(), atol=3e-2)


def test_sums_of_bfloat16_and_inputs_of_float8() -> None:
    x = torch.randn(3, 4)
    for function, given in ((lambda x: (x.sum(), x + x), x.bfloat16()), (lambda x: x.float() + 1, x.to(torch.float8_e4m3fn))):
        assert same(on_reference(function)(given), function(given))


def test_sparse_tensors_stay_in_torch() -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.relu(torch.sparse.mm(x, y)) + y

    x, y = torch.eye(3).to_sparse(), torch.randn(3, 3)
    assert same(on_reference(function)(x, y), function(x, y))


def test_a_number_that_changes_with_each_call_is_compiled_a_few_times_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partita.torch_compile import graph_call

    given_to, unchanged = list[Any](), graph_call.compiled
    monkeypatch.setattr(graph_call, "compiled", lambda *given: given_to.append(given) or unchanged(*given))
    caplog.set_level(logging.INFO, "partita.torch")
    call, x = on_reference(lambda x, scale: torch.relu(x) * scale + 1), torch.randn(2, 3)
    for scale in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 1.5):
        assert same(call(x, scale), torch.relu(x) * scale + 1)
    # torch captures the first number as a constant of a graph of its own.
    assert len(given_to) == 1 + graph_call.NUMBERS
    assert messages(caplog).count("numbers other than the first 3") == 1


def test_models_and_their_reports_are_at_hand() -> None:
    models: list[pt.CompiledModel] = []
    compiled(mlp(), options={"devices": "reference", "models": models})(torch.randn(2, 8))
    assert [model.report.placement.devices for model in models] == [("reference",)]


def test_the_devices_are_an_option() -> None:
    module, x = mlp(), torch.randn(2, 8)
    assert same(compiled(module, options={"devices": "reference"})(x), module(x))


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(Exception, match=r"there is no option 'device'[\s\S]*Options are devices, config"):
        compiled(mlp(), options={"device": "cpu"})(torch.randn(2, 8))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_come_in_from_torch(kind: str) -> None:
    module = getattr(torch.nn, kind)(8, 16, 2, bidirectional=True, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    graph = pt.from_torch(module, x)
    # torch's exporter writes a RNN as its steps.
    assert [node.op for node in graph.nodes].count(kind) == (0 if kind == "RNN" else 2)
    model = pt.compile(graph, "cpu")
    outputs, state = module(x)
    wanted = [outputs, *(state if kind == "LSTM" else [state])]
    assert all(map(same, map(torch.from_numpy, model(x.numpy())), wanted))


def test_recurrent_layers_are_captured_where_torch_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    module = torch.nn.LSTM(8, 16, bidirectional=True, batch_first=True).eval()
    caplog.set_level(logging.INFO, "partita.torch")
    with torch._dynamo.config.patch(allow_rnn=True):
        call = compiled(module)
        for steps in (5, 7):
            x = torch.randn(2, steps, 8)
            assert same(call(x), module(x))
    assert "was captured" in messages(caplog) and "is cut" not in messages(caplog)


def on_reference(module: Any, **options: Any) -> Callable[..., Any]:
    return compiled(module, options={"devices": "reference"}, **options)


def test_what_is_written_to_a_view_reaches_what_it_is_a_view_of() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x) + 1
        return y.t(), y, y[0], x[1:], x

    x = torch.randn(3, 4)
    results = on_reference(function)(x)
    assert same(results, function(x))
    results[1][0, 0] = 77.0
    results[3][0, 0] = 78.0
    assert results[0][0, 0] == results[2][0] == 77.0 and x[1, 0] == results[4][1, 0] == 78.0


def test_the_parts_of_a_split_are_views() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x) + 1
        return y, *y.chunk(2), *torch.split(x, [1, 3], 1), y.unbind(1)[0]

    x = torch.randn(4, 4)
    results = on_reference(function)(x)
    assert same(results, function(x))
    results[1][0, 0], results[3][1, 0] = 77.0, 78.0
    assert results[0][0, 0] == results[5][0] == 77.0 and x[1, 0] == 78.0


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_view_of_an_input_is_one_for_every_size(dynamic: bool | None) -> None:
    call = on_reference(lambda x: (x.view(x.shape[0] * 2, -1), torch.relu(x)), dynamic=dynamic)
    for rows in (2, 5):
        x = torch.randn(rows, 4)
        view, _ = call(x)
        assert view.data_ptr() == x.data_ptr() and same(view, x.view(rows * 2, -1))


def test_a_size_that_the_exporter_fixes_is_exported_for_each_call() -> None:
    """The exporter gives `chunk` the sizes of the first call."""

    def function(x: Any) -> Any:
        return *x.chunk(2), torch.relu(x)

    call = on_reference(function, dynamic=True)
    for rows in (2, 4, 7):
        x = torch.randn(rows, 3)
        assert same(call(x), function(x))


def test_results_have_the_strides_that_torch_gives_them() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x).transpose(1, 2)
        torch._dynamo.graph_break()
        return y.transpose(1, 2).view(-1)

    x = torch.randn(2, 3, 4)
    assert same(on_reference(function)(x), function(x))
    layer = torch.nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
    image = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    result = on_reference(layer)(image)
    assert same(result, layer(image)) and result.stride() == layer(image).stride()


def test_a_graph_that_only_writes_still_writes() -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        return x.view(-1)

    x = torch.ones(3, 2)
    assert same(on_reference(function)(x), torch.full((6,), 2.0)) and same(x, torch.full((3, 2), 2.0))


def test_a_parameter_with_other_memory_is_seen() -> None:
    module, x = mlp(), torch.randn(2, 8)
    call = on_reference(module)
    call(x)
    module[0].weight.data = torch.randn(16, 8)
    assert same(call(x), module(x))


def test_a_parameter_with_another_shape_in_the_same_memory_is_seen() -> None:
    module, x = torch.nn.Linear(8, 8).eval(), torch.randn(2, 8)
    call = on_reference(module)
    call(x)
    module.weight.data, module.bias.data = module.weight.data[:5], module.bias.data[:5]
    assert same(call(x), module(x))


def test_a_call_like_the_one_before_looks_up_the_kind_of_its_inputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.torch_compile.captured import Captured

    module, x = mlp(), torch.randn(2, 8)
    call = on_reference(module)
    call(x)
    looked, kind = [], Captured._kind

    def noted(self: Captured, i: int, value: Any, dynamic: bool) -> Any:
        looked.append(value)
        return kind(self, i, value, dynamic)

    monkeypatch.setattr(Captured, "_kind", noted)
    assert same(call(x), module(x)) and len(looked) == 1


def test_layers_of_one_class_keep_a_model_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch captures one graph for all of them, and hands it the parameters of the one that is called."""
    from partita.torch_compile import graph_call

    given_to, unchanged = list[Any](), graph_call.compiled
    monkeypatch.setattr(graph_call, "KEPT", 1)
    monkeypatch.setattr(graph_call, "compiled", lambda *given: given_to.append(given) or unchanged(*given))
    layers, x = [mlp() for _ in range(3)], torch.randn(2, 8)
    calls = [on_reference(layer) for layer in layers]
    for _ in range(2):
        for call, layer in zip(calls, layers, strict=True):
            assert same(call(x), layer(x))
    assert len(given_to) == 3


def test_models_of_parameters_that_are_no_more_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.torch_compile import graph_call

    monkeypatch.setattr(graph_call, "KEPT", 2)
    module = torch.fx.symbolic_trace(lambda x, weight: (torch.matmul(x, weight),))
    call, x = graph_call.GraphCall(module, "reference", None), torch.randn(2, 4)
    for _ in range(4):
        weight = torch.nn.Parameter(torch.randn(4, 4))
        assert same(call(x, weight), (x @ weight,))
        gc.collect()
    for batch in range(3, 7):
        call(torch.randn(batch, 4), weight)
    assert len(call._ready) == 2


def test_parameters_made_under_inference_mode_may_change() -> None:
    with torch.inference_mode():
        module, x = torch.nn.Linear(4, 4).eval(), torch.randn(2, 4)
        call = on_reference(module)
        call(x)
        module.weight.mul_(2.0)
        assert same(call(x), module(x))


def test_two_threads_compile_a_graph_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.torch_compile.backend import Options, _Lazy

    begun, may_end, compilations = threading.Event(), threading.Event(), list[int]()

    def compile_slowly(lazy: _Lazy, inputs: Any) -> Callable[..., Any]:
        compilations.append(len(compilations))
        begun.set()
        may_end.wait()
        return lambda number: -number

    monkeypatch.setattr(_Lazy, "_made", compile_slowly)
    lazy = _Lazy(torch.fx.symbolic_trace(lambda x: torch.relu(x)), Options())
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lazy, 1)
        begun.wait()
        second = threads.submit(lazy, 2)
        time.sleep(0.1)  # for a second compilation to begin, if one does
        may_end.set()
        assert (first.result(), second.result(), compilations) == (-1, -2, [0])


def test_threads_may_call_what_is_not_compiled_yet() -> None:
    module = mlp()
    call = on_reference(module, dynamic=True)

    def is_right(batch: int) -> bool:
        with torch.no_grad():
            x = torch.randn(batch, 8)
            return same(call(x), module(x))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(is_right, (2, 3, 4, 5)))


def test_parts_that_can_be_exported_are_joined_where_they_can_be_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.torch_compile import splitting

    module = torch.fx.symbolic_trace(lambda x: (torch.relu(x).exp().sin().cos().tanh().abs(),))
    ops = [node for node in module.graph.nodes if node.op not in ("placeholder", "output")]
    monkeypatch.setattr(splitting, "_is_exported", lambda module, ops, inputs, first, last: first > 1 or last <= 4)
    pieces = splitting._pieces(module, ops, [torch.randn(2)])
    assert [(piece.first, piece.last) for piece in pieces] == [(0, 3), (3, 6)]


def test_a_module_may_be_compiled_for_ourselves() -> None:
    module, x = mlp(), torch.randn(2, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pt.compile(module, "HETERO:cpu,reference", example_inputs=x)
    assert np.allclose(model(x.numpy())[0], module(x).numpy(), atol=1e-5)


def test_a_program_that_torch_exported_comes_in() -> None:
    module, x = mlp(), torch.randn(2, 8)
    program = torch.export.export(module, (x,))
    graph = pt.from_torch(program)
    assert np.allclose(pt.compile(graph, "reference")(x.numpy())[0], module(x).numpy(), atol=1e-5)
    assert np.allclose(pt.compile(program, "reference")(x.numpy())[0], module(x).numpy(), atol=1e-5)


def test_a_module_without_inputs_is_an_error() -> None:
    with pytest.raises(pt.PartitaError, match="there are no example_inputs"):
        pt.compile(mlp(), "reference")


@pytest.mark.parametrize("name", tuple(FUNCTIONS))
def test_a_hostile_function_does_what_it_does_in_torch(name: str) -> None:
    assert HOSTILE.difference(FUNCTIONS[name], on_reference) is None


@pytest.mark.parametrize("name", tuple(HOSTILE.SCENARIOS) if HOSTILE else ())
def test_what_changes_between_calls_is_seen(name: str) -> None:
    """On kernels, which keep weights in layouts of their own."""
    pairs = HOSTILE.SCENARIOS[name](compiled)
    assert [HOSTILE.unlike(result, wanted) for result, wanted in pairs] == [None] * len(pairs)


def tokens(kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, int]:
    """16 tokens that a decoder of one layer generates compiled, those in torch, and how many models were compiled."""
    import transformers

    from partita.torch_compile import graph_call

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 120}
    config = getattr(transformers, f"{kind}Config")(**sizes, max_position_embeddings=64, **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    prompt, count = torch.randint(1, 120, (1, 5)), list[Any]()
    wanted = model.generate(prompt, max_new_tokens=16, do_sample=False)
    unchanged = graph_call.compiled
    monkeypatch.setattr(graph_call, "compiled", lambda *given: count.append(given) or unchanged(*given))
    model.forward = on_reference(model.forward)
    for _ in range(2):
        result = model.generate(prompt, max_new_tokens=16, do_sample=False)
    return result, wanted, len(count)


@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
@pytest.mark.parametrize(
    ("kind", "options"),
    [("Llama", {}), ("Gemma3Text", {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 128})],
    ids=["a growing cache", "a sliding cache, which counts its tokens"],
)
def test_sixteen_tokens_take_three_compilations(kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    result, wanted, compilations = tokens(kind, options, monkeypatch)
    assert torch.equal(result, wanted) and compilations <= 3


@pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")
def test_a_mixture_of_experts_leaves_its_grouped_products_alone_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "partita.torch")
    result, wanted, compilations = tokens("Mixtral", {"num_key_value_heads": 2, "num_local_experts": 4}, monkeypatch)
    assert torch.equal(result, wanted) and compilations == 9
    assert "is cut into 5 parts; torch runs transformers.grouped_mm_fallback" in messages(caplog)


def test_several_results_of_an_op_stay_in_the_part_that_has_it() -> None:
    """A part that was handed the tuple of a sort took its tensors for constants, and failed in the second call."""

    def function(x: Any) -> Any:
        values, places = x.sort(stable=True)
        return values * 2 + 1, places + 1, torch.relu(values) - x

    call = on_reference(function)
    for _ in range(3):
        x = torch.randn(3, 4)
        assert same(call(x), function(x))


def test_writes_to_what_has_views_stay_in_torch_where_the_graph_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    def fresh(x: Any) -> Any:
        y = torch.relu(x) * 2
        y /= eigenvalues(x).sum()
        return y.reshape(-1) + 1

    def viewed(x: Any) -> Any:
        y = torch.relu(x) * 2
        row = y[0]
        row /= eigenvalues(x).sum()
        return y + 1

    caplog.set_level(logging.INFO, "partita.torch")
    x = torch.randn(3, 3)
    for function, reason in ((fresh, "is cut into"), (viewed, "changes a tensor in place")):
        assert torch.allclose(on_reference(function)(x), function(x), atol=1e-4)
        assert reason in messages(caplog)
        caplog.clear()


def test_from_torch_refuses_what_the_exporter_drops() -> None:
    class Pooled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.avg_pool2d(x, 3, divisor_override=5)

    class Negative(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * -0.0

    class Smoothed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.cross_entropy(x, (x[:, 0] > 0).long(), label_smoothing=0.1)

    class Averaged(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.scatter_reduce(3, x.argmax(3, keepdim=True), x, "mean")

    class Antialiased(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(x, size=(3, 9), mode="bilinear", antialias=True, align_corners=True)

    for module, cause in (
        (Smoothed(), "drops label_smoothing of aten::cross_entropy_loss"),
        (Averaged(), "drops reduce of aten::scatter_reduce"),
        (Antialiased(), "drops align_corners of aten::_upsample_bilinear2d_aa"),
        (Pooled(), "drops divisor_override of aten::avg_pool2d"),
        (Negative(), "may write 0.0 for the -0.0"),
    ):
        with pytest.raises(pt.PartitaError, match=cause):
            pt.from_torch(module, torch.randn(1, 2, 6, 6))


@pytest.mark.parametrize("dynamic_shapes", [None, {"x": {2: "h", 3: "w"}}])
def test_aligned_corners_come_in_as_torch_aligns_them(dynamic_shapes: Any) -> None:
    class Enlarged(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(torch.sign(x), scale_factor=1.7, mode="bilinear", align_corners=True)

    module = Enlarged()
    graph = pt.from_torch(module, torch.randn(1, 2, 6, 7), dynamic_shapes=dynamic_shapes)
    x = torch.randn(1, 2, 6, 7) if dynamic_shapes is None else torch.randn(1, 2, 5, 9)
    x[0, 0, 0, 0] = float("nan")
    assert np.allclose(pt.compile(graph, "reference")(x.numpy())[0], module(x).numpy(), atol=1e-5)


@pytest.mark.parametrize("dynamic_shapes", [None, {"x": {0: "rows"}, "index": None}])
def test_updates_beyond_the_indices_are_not_scattered(dynamic_shapes: Any) -> None:
    class Scattered(torch.nn.Module):
        def forward(self, x: Any, index: Any) -> Any:
            return x.scatter_add(0, index, x), x.scatter(1, index, 2 * x)

    module, index = Scattered(), torch.tensor([[0, 1], [2, 0]])
    graph = pt.from_torch(module, (torch.randn(3, 4), index), dynamic_shapes=dynamic_shapes)
    x = torch.randn(3 if dynamic_shapes is None else 5, 4)
    for result, wanted in zip(pt.compile(graph, "reference")(x.numpy(), index.numpy()), module(x, index), strict=True):
        assert np.allclose(result, wanted.numpy())


def test_a_query_whose_mask_hides_all_keys_gets_zeros() -> None:
    class Attention(torch.nn.Module):
        def forward(self, query: Any, key: Any, mask: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    query, key, module = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), Attention()
    seen = torch.tensor([[True, False, True, False, True], [False] * 5, [True] * 5])
    for mask in (seen, torch.where(seen, 0.0, -torch.inf)):
        graph = pt.from_torch(module, (query, key, mask))
        for device in ("cpu", "reference"):
            model = pt.compile(graph, device)
            for odd in (0.0, torch.nan, torch.inf):
                key[0, 0, 1, 0] = odd
                wanted, result = module(query, key, mask), torch.from_numpy(model(query.numpy(), key.numpy(), mask.numpy())[0])
                assert torch.allclose(result, wanted, atol=1e-5, equal_nan=True)
                assert odd or not wanted[0, :, 1].any()
