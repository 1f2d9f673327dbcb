"""Growth "walk": the groups, and every call of every selector, as the literal reading makes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shapes import SHAPES, far_skips
from partita.partition.growth import FilterError, WalkObserver, walk
from tests.graphs.on_integers import control_edges, fixed_groups, graphs, veto
from tests.partition.growth.oracles import LiteralWalk, acyclic, parts


class Device:
    """Takes nodes of the seed's device, and writes down what it is asked."""

    def __init__(self, color, log=None):
        self.color = color
        self.log = [] if log is None else log
        self.log.append("new")

    def select(self, node):
        self.log.append(("select", node))
        self.device = self.color[node]
        return self.device is not None

    def select_input(self, cur, new):
        self.log.append(("input", cur, new))
        return self.wants(cur, new, "input")

    def select_output(self, cur, new):
        self.log.append(("output", cur, new))
        return self.wants(cur, new, "output")

    def wants(self, cur, new, direction):
        return self.color[new] == self.device

    def filter(self, candidates):
        self.log.append(("filter", *candidates))
        return candidates

    def reset(self):
        self.log.append("reset")


class Moody(Device):
    """Refuses some edges, stops after some questions, drops some candidates."""

    salt, patience, drops = 0, 1_000, False

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = 0

    def wants(self, cur, new, direction):
        self.asked += 1
        likes = veto(self.salt)(cur, new, direction)
        return super().wants(cur, new, direction) and likes and self.asked <= self.patience

    def filter(self, candidates):
        super().filter(candidates)
        return [v for v in candidates if not self.drops or veto(self.salt + 1, 0.3)(v)]

    def reset(self):
        super().reset()
        self.asked = 0


@st.composite
def moods(draw):
    """A class of selectors."""
    return type(
        "Drawn",
        (Moody,),
        {
            "salt": draw(st.integers(0, 5)),
            "patience": draw(st.sampled_from([1_000, 6])),
            "drops": draw(st.booleans()),
        },
    )


class Diary(WalkObserver):
    """Writes down all that it is told."""

    def __init__(self):
        self.told = []

    def all(self, name):
        return [entry[1:] for entry in self.told if entry[0] == name]


def _entry(name):
    return lambda self, *args: self.told.append((name, *args))


for _name in [name for name in vars(WalkObserver) if not name.startswith("_")]:
    setattr(Diary, _name, _entry(_name))


def compare(graph, usable, mood, fixed, patience, control=frozenset()):
    """The walk against the literal one."""
    ours, theirs, watched, diary = [], [], [], Diary()
    literal = LiteralWalk(graph.preds, usable, lambda: mood(graph.color, theirs), fixed, patience, control)
    expected = literal.run()
    groups = walk(graph.preds, usable, lambda: mood(graph.color, ours), fixed, patience, control=control)
    assert ours == theirs
    assert groups == expected
    assert walk(graph.preds, usable, lambda: mood(graph.color, watched), fixed, patience, diary, control) == groups
    assert watched == theirs
    assert not control.intersection(asked_edges(theirs))
    check(graph, usable, groups, fixed, diary, literal)
    return groups


def asked_edges(log):
    """The edges that a selector was asked about, as (producer, consumer)."""
    inputs = {(new, cur) for cur, new in (entry[1:] for entry in log if entry[0] == "input")}
    return inputs | {entry[1:] for entry in log if entry[0] == "output"}


def check(graph, usable, groups, fixed, diary, literal):
    """What holds for every walk, and what its observer hears."""
    assert acyclic(graph.preds, [*fixed, *groups])
    members = [v for group in [*fixed, *groups] for v in group]
    assert len(members) == len(set(members))
    for group in groups:
        assert parts(group, lambda u, v: u in literal.ins[v]) == [group]
        assert all(usable[v] for v in group)
    for (cur, new, _, closed), (*expected, blocking) in zip(diary.all("passed_over"), literal.passed_over, strict=True):
        assert [cur, new] == expected
        assert closed in blocking
    assert [group for _, item in diary.all("finished") for group in item] == groups
    starts = [seed for (seed,) in diary.all("started")]
    assert starts == [seed for seed, _ in diary.all("finished")]


@settings(deadline=None, max_examples=400)
@given(st.data(), moods(), st.sampled_from([8, 0.5, 0.2, -1]))
def test_groups_and_calls_are_those_of_the_literal_walk(data, mood, patience) -> None:
    graph = data.draw(graphs(max_nodes=20, devices=2))
    usable = [bool(producers) or v % 3 > 0 for v, producers in enumerate(graph.preds)]
    compare(graph, usable, mood, [], patience)


@settings(deadline=None, max_examples=200)
@given(st.data(), moods(), st.sampled_from([8, 0.5, -1]))
def test_control_dependencies_are_never_asked_about(data, mood, patience) -> None:
    graph = data.draw(graphs(max_nodes=16, devices=2))
    usable = [bool(producers) or v % 3 > 0 for v, producers in enumerate(graph.preds)]
    fixed = data.draw(fixed_groups(graph))
    compare(graph, usable, mood, fixed, patience, data.draw(control_edges(graph)))


@settings(deadline=None, max_examples=100)
@given(st.data(), moods(), st.sampled_from([8, -1]))
def test_around_groups_that_are_fixed(data, mood, patience) -> None:
    graph = data.draw(graphs(max_nodes=16, devices=2))
    compare(graph, [True] * len(graph.preds), mood, data.draw(fixed_groups(graph)), patience)


@pytest.mark.slow
@settings(deadline=None, max_examples=10_000)
@given(st.data(), moods(), st.sampled_from([8, 0.5, 0.2, -1]))
def test_the_literal_walk_on_many_graphs(data, mood, patience) -> None:
    graph = data.draw(graphs(max_nodes=30, devices=2, span=20))
    usable = [bool(producers) or v % 3 > 0 for v, producers in enumerate(graph.preds)]
    compare(graph, usable, mood, data.draw(fixed_groups(graph)), patience)


def test_the_order_of_the_calls() -> None:
    # 0 and 1 feed 2; 3 and 4 read 2; 5 reads 3 and 4; 4 is on another device.
    preds, color = [[], [], [0, 1], [2], [2], [3, 4]], [0, 0, 0, 0, 1, 0]
    log: list[object] = []
    assert walk(preds, [True] * 6, lambda: Device(color, log)) == [[0, 1, 2, 3], [4], [5]]
    assert log[:9] == [
        "new",
        ("select", 0),
        ("output", 0, 2),
        ("input", 2, 1),
        ("output", 2, 3),
        ("output", 2, 4),
        ("filter", 0, 1, 2, 3),
        "new",
        ("select", 4),
    ]


def test_what_an_observer_hears() -> None:
    preds, color = [[], [], [0, 1], [2], [2], [3, 4]], [0, 0, 0, 0, 1, 0]
    diary = Diary()
    walk(preds, [True] * 6, lambda: Device(color), observer=diary)
    assert diary.told[:8] == [
        ("started", 0),
        ("joined", 0, 2, "output"),
        ("joined", 2, 1, "input"),
        ("joined", 2, 3, "output"),
        ("refused", 2, 4, "output"),
        ("passed_over", 3, 5, "output", 4),
        ("finished", 0, [[0, 1, 2, 3]]),
        ("started", 4),
    ]


def test_a_growth_that_closes_a_cycle_loses_what_it_re_enters() -> None:
    # 3 joins before 2 is met as refused: 1 -> 2 -> 3 comes back.
    preds, color = [[], [0], [1], [0, 2]], [0, 0, None, 0]
    diary = Diary()
    log: list[object] = []
    assert walk(preds, [True] * 4, lambda: Device(color, log), observer=diary) == [[0, 1], [3]]
    assert diary.all("dropped") == [(0, [3])]
    assert log.count("reset") == 1


def test_what_filter_leaves_is_cut_where_it_closes_a_cycle() -> None:
    # 0 -> 1 -> 3 and 0 -> 3 and 0 -> 2: filter drops 1.
    preds: list[list[int]] = [[], [0], [0], [0, 1]]

    class Drops(Device):
        def filter(self, candidates):
            return [v for v in candidates if v != 1]

    diary = Diary()
    groups = walk(preds, [True] * 4, lambda: Drops([0] * 4), observer=diary)
    assert groups == [[0, 2], [3]]
    assert diary.all("filtered")[0] == (0, [1])
    assert diary.all("cut") == [(0, [3])]


def test_unusable_nodes_are_never_shown() -> None:
    log: list[object] = []
    assert walk([[], [], [0, 1]], [False, True, True], lambda: Device([0] * 3, log)) == [[1, 2]]
    assert log == ["new", ("select", 1), ("output", 1, 2), ("filter", 1, 2)]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([0, 7], r"from node 0, returned nodes that are not candidates: \[7\]"),
        ([0, 1, 0], r"returned nodes more than once: \[0\]"),
        ([0, 0, 9], r"not candidates: \[9\] and nodes more than once: \[0\]"),
    ],
)
def test_a_filter_that_invents_or_repeats(kept, message) -> None:
    class Invents(Device):
        def filter(self, candidates):
            return kept

    with pytest.raises(FilterError, match=message):
        walk([[], [0]], [True] * 2, lambda: Invents([0, 0]))


@pytest.mark.parametrize("hook", ["select", "select_input", "select_output", "filter", "reset"])
def test_exceptions_pass_through(hook) -> None:
    def fails(*args):
        raise KeyError("mine")

    mood = type("Fails", (Device,), {hook: fails})
    preds, color = [[], [], [0], [2], [0, 1, 3]], [0, 0, 0, None, 0]
    with pytest.raises(KeyError, match="mine"):
        walk(preds, [True] * 5, lambda: mood(color))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [40, 2_000])
def test_shapes(shape, nodes) -> None:
    preds, color = SHAPES[shape](nodes)
    groups = walk(preds, [True] * len(preds), lambda: Device(color, []))
    assert acyclic(preds, groups)
    assert sum(map(len, groups)) == sum(c is not None for c in color)


def test_skips_over_the_whole_graph() -> None:
    preds, color = far_skips(1_000)
    groups = walk(preds, [True] * len(preds), lambda: Device(color, []))
    assert acyclic(preds, groups)
    assert sum(map(len, groups)) == sum(c is not None for c in color)


def test_a_hub_asks_no_quadratic_number_of_questions() -> None:
    preds, color = SHAPES["hub"](4_000)
    log: list[object] = []
    walk(preds, [True] * len(preds), lambda: Device(color, log))
    assert sum(isinstance(entry, tuple) and entry[0] in {"input", "output"} for entry in log) <= 45_000


def test_a_deep_graph_overflows_nothing() -> None:
    preds, color = SHAPES["chain"](100_000)
    assert [len(group) for group in walk(preds, [True] * 100_000, lambda: Device(color))] == [100_000]
