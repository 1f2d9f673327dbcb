"""Ops at which the onnx package crashes the process: its inference takes it for granted that their inputs have types."""

from __future__ import annotations

from graph.node import Node

_FRAGILE = frozenset({("", "RegexFullMatch"), ("ai.onnx.ml", "DictVectorizer"), ("ai.onnx.ml", "TreeEnsemble")})


def is_fragile(node: Node) -> bool:
    """Must the node be kept from ONNX's inference, checker and version converter unless its inputs' types are known?"""
    return (node.domain, node.op) in _FRAGILE
