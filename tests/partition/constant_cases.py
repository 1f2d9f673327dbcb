"""Small graphs with constants and affinities, and the groups that come of them.

`X@A(x,k)` is an op X on device A that reads the graph input x and the constant k: names of constants begin with k, of
inputs with x or y. One value read makes a Relu, several make a Sum."""

from __future__ import annotations

import re

import numpy as np

from partita.graph import Graph, Node, constant, op, variable

SHAPE = (2, 3)

CASES: dict[str, tuple[str, str]] = {
    "an op that reads a constant alone": ("X@A(x,k) Z@A(k)", "XZ"),
    "the constant alone first": ("Z@A(k) X@A(x,k)", "XZ"),
    "another device": ("X@A(x,k) Z@B(k)", "X Z"),
    "two devices with two ops each": ("X@A(x,k) Z@A(k) Y@B(X,k) W@B(k)", "XZ YW"),
    "two ops that read nothing else": ("Z@A(k) W@A(k)", "WZ"),
    "three ops that read nothing else": ("Z@A(k) W@A(k) V@A(k) X@B(x)", "VWZ X"),
    "another constant": ("X@A(x,k1) Z@B(k2) W@A(k2)", "X Z W"),
    "over two constants": ("X@A(x,k1) Z@A(k1,k2) W@A(k2)", "WXZ"),
    "a chain of constants": ("Z@A(k1,k2) W@A(k2,k3) V@A(k3)", "VWZ"),
    "with what reads it": ("X@A(x,k) Z@A(k) W@A(Z)", "WXZ"),
    "what reads it is elsewhere": ("X@A(x,k) Z@A(k) W@B(Z)", "XZ W"),
    "it is read after another device": ("A@A(x,k) B@B(A) C@A(B,k) Z@A(k)", "AZ B C"),
    "it feeds another device, which feeds the reader": ("Z@A(k) B@B(Z) C@A(B,k)", "Z B C"),
    "the reader before, since the reader behind is reached": ("X@A(x,k) Z@A(k) B@B(Z) C@A(B,k)", "XZ B C"),
    "it feeds the group that it joins": ("X@A(x,k) Z@A(k) Y@A(X,Z)", "XYZ"),
    "it feeds both devices": ("X@A(x,k) Z@A(k) Y@A(X,Z) B@B(Z)", "XYZ B"),
    "around another device into the group": ("X@A(x) Z@A(k) B@B(Z) Y@A(X,B,k)", "XY Z B"),
    "two around each other": ("X@A(x,k1) Z@A(k1) Y@B(y,k2) W@B(k2)", "XZ YW"),
    "each feeds the other's group": ("Z@A(k1) W@B(k2) X@A(x,k1,W) Y@B(y,k2)", "XZ WY"),
    "one constant for both devices": ("Z@A(k) W@B(k) X@A(x,k) Y@B(X,k)", "XZ WY"),
    "two constants only": ("X@A(x,k1) Z@A(k1,k2)", "XZ"),
    "a diamond over another device": ("P@A(x,k) Q@B(P) R@A(P) S@A(Q,R) Z@A(k)", "PZ Q RS"),
    "a diamond with the reader below": ("P@A(x) Q@B(P) R@A(P) S@A(Q,R,k) Z@A(k)", "P Q RSZ"),
    "three devices": ("X@A(x,k) Y@B(X,k) V@C(Y,k) Z@A(k) W@B(k) U@C(k)", "XZ WY UV"),
    "the seed's diamond": ("1@A(x) 2@A(1) 3@A(2) 4@B(2) 5@A(3,4) 6@A(5,k) 7@A(6) Z@A(k)", "12 4 3567Z"),
    "a hub of readers": ("X@A(x,k) Y@B(X) V@A(Y,k) W@B(V) U@A(W,k) Z@A(k)", "XZ Y V W U"),
    "the last reader is the only one": ("X@B(x) Y@A(X,k) Z@A(k) W@B(Y)", "X YZ W"),
    "a reader whose result is returned": ("X@A(x,k) Z@A(k) W@B(x,Z)", "XZ W"),
    "one constant twice": ("X@A(x,k,k) Z@A(k,k)", "XZ"),
    "a long way around": ("Z@A(k) B@B(Z) C@C(B) D@A(C,k) E@A(x,k)", "EZ B C D"),
    "its reader's device comes back": ("Z@A(k) Y@B(x,Z) X@A(y,k) W@A(X,Y)", "WX Y Z"),
    "readers of a constant that share no op of that kind": ("X@A(x) Y@B(X,k) Z@B(Y,k)", "X YZ"),
    "two groups through one op": ("X@A(x,k1) Y@B(X) Z@A(k1,k2) W@A(y,k2) V@B(W)", "WXZ Y V"),
    "a pair of readers above and below": ("Z@A(k) W@A(k) B@B(Z) C@A(B,k)", "WZ B C"),
}
"""Each case under what is particular about it: the graph, and its groups (one letter for an op)."""


def parse(text: str) -> dict[str, tuple[str, list[str]]]:
    """The device of each op, by its name, and what the op reads."""
    return {name: (device, read.split(",")) for name, device, read in re.findall(r"(\w+)@(\w)\(([\w,]+)\)", text)}


def graph_of(text: str) -> Graph:
    """The graph. Inputs and constants are those that it names."""
    listed: dict[str, Node] = {}
    for name, (device, read) in parse(text).items():
        for value in read:
            if value not in listed:
                array = np.linspace(-1, 1 + len(listed), 6, dtype=np.float32).reshape(SHAPE)
                listed[value] = constant(array, value) if value[0] == "k" else variable(value, "float32", SHAPE)
        listed[name] = op("Relu" if len(read) == 1 else "Sum", *(listed[value] for value in read), name=name)
        listed[name].affinity = device
    used = {value for _, read in parse(text).values() for value in read}
    return Graph([listed[name] for name in parse(text) if name not in used])


def groups_in(text: str) -> list[list[str]]:
    """The written groups, sorted."""
    return sorted(sorted(group) for group in text.split())
