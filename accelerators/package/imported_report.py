"""The report of an imported model: how it was made, and what happened at import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from accelerators.placement.placement import NoSuchNode
from graph.errors import did_you_mean
from graph.words import counted


@attrs.frozen(slots=True, eq=False, repr=False)
class ImportedReport:
    """`model.report` of an imported model: the words of the exporter's report."""

    data: Mapping[str, Any]
    """The exporter's compile report as plain data."""
    notes: tuple[str, ...]
    """Notes about the import: which subgraphs were compiled anew, and why."""

    def why(self, node: str) -> str:
        """The device of the node, and why it is not on the preferred devices."""
        placement = self.data.get("placement", {})
        known = placement.get("nodes", {})
        if node not in known:
            where = f"model {self.data.get('model')!r}"
            raise NoSuchNode(f"there is no op node {node!r}", where=where, remedy=did_you_mean(node, known))
        refused = placement.get("refusals", {}).get(node, {})
        head = f"{node} is on {placement['nodes'][node]}"
        return "\n".join([head, *(f"  not on {device}: {reason}" for device, reason in refused.items())])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**self.data, "notes": [*self.data.get("notes", ()), *self.notes]}

    def __str__(self) -> str:
        rows = [f"  {row['name']} on {row['device']}: {counted(row['ops'], 'op')}" for row in self.data.get("subgraphs", ())]
        return "\n".join([f"{self.data.get('model')}: imported, {counted(len(rows), 'subgraph')}", *rows, *self.notes])

    def __repr__(self) -> str:
        return f"<ImportedReport of {self.data.get('model')!r}>"
