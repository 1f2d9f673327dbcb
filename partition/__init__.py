"""Partitioning: selectors, properties, patterns, backends, growth, plans, reports; PartitionGraph and InlineSubgraphs."""

from partita.partition.backend import list_backends, list_properties, register_property, unregister_property
from partita.partition.errors import PartitionError
from partita.partition.inline_subgraphs import inline_subgraphs
from partita.partition.partition_graph import optimize_for, partition_graph, plan
from partita.partition.pattern import ANY, CONST, Pattern
from partita.partition.plans import Plan
from partita.partition.property import AffinityProperty, PatternProperty, SubgraphProperty
from partita.partition.reasons import Border, Group, Outside
from partita.partition.report import PartitionReport
from partita.partition.selector import ContainOpSelector, SubgraphSelector
from partita.partition.watching import Frame, Watch, watch

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
