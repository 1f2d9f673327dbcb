"""Partitioning: selectors, properties, patterns, backends, growth, plans, reports; PartitionGraph and InlineSubgraphs."""

from partition.backend import list_backends, list_properties, register_property, unregister_property
from partition.errors import PartitionError
from partition.inline_subgraphs import inline_subgraphs
from partition.partition_graph import optimize_for, partition_graph, plan
from partition.pattern import ANY, CONST, Pattern
from partition.plans import Border, Group, Outside, Plan
from partition.property import AffinityProperty, PatternProperty, SubgraphProperty
from partition.report import PartitionReport
from partition.selector import ContainOpSelector, SubgraphSelector
from partition.watching import Frame, Watch, watch

__all__ = [
    "ANY",
    "CONST",
    "AffinityProperty",
    "Border",
    "ContainOpSelector",
    "Frame",
    "Group",
    "Outside",
    "PartitionError",
    "PartitionReport",
    "Pattern",
    "PatternProperty",
    "Plan",
    "SubgraphProperty",
    "SubgraphSelector",
    "Watch",
    "inline_subgraphs",
    "list_backends",
    "list_properties",
    "optimize_for",
    "partition_graph",
    "plan",
    "register_property",
    "unregister_property",
    "watch",
]
