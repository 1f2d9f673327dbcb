"""The report of an imported model: the exporter's, and notes on the import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.building.report import SubgraphRow
from partita.accelerators.placement.placement import NoSuchNode
from partita.accelerators.process.json_form import form_error
from partita.accelerators.runtime.package.container import Package, PackageError
from partita.graph.errors import did_you_mean
from partita.graph.formatting import counted

if TYPE_CHECKING:
    from rich.table import Table

MEMBER = "report.json"
"""The member of a package that holds the exporter's report."""

_FORM = {
    "model": str,
    "subgraphs": [{"name": str, "device": str, "ops": int}],
    "placement": {"devices": [str], "nodes": {str: str}, "refusals": {str: {str: str}}},
    "notes": [str],
}
"""The checked part of a report; the rest is passed on unchanged."""


def read_report(package: Package) -> dict[str, Any]:
    """The exporter's report; PackageError if its form is invalid."""
    try:
        data = json.loads(bytes(package.member(MEMBER)))
        wrong = form_error(data, _FORM)
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong is not None:
        cause = f"its report is not what this version of Partita writes: {wrong}"
        raise PackageError(cause, where=package.where, remedy="Export the model again")
    return dict(data)


@attrs.frozen(slots=True, eq=False, repr=False)
class ImportedReport:
    """`model.report` of an imported model, from the exporter's report."""

    data: Mapping[str, Any]
    """The exporter's compile report as plain data, as `read_report` returns it."""
    notes: tuple[str, ...] = ()
    """Notes on the import: which subgraphs were compiled again, and why."""

    def why(self, node: str) -> str:
        """The device of the node, and why it is not on the preferred devices."""
        placement = self.data["placement"]
        if node not in placement["nodes"]:
            where = f"model {self.data['model']!r}"
            raise NoSuchNode(f"there is no op node {node!r}", where=where, remedy=did_you_mean(node, placement["nodes"]))
        head = f"{node} is on {placement['nodes'][node]}"
        refused = placement["refusals"].get(node, {})
        return "\n".join([head, *(f"  not on {device}: {reason}" for device, reason in refused.items())])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**self.data, "notes": [*self.data["notes"], *self.notes]}

    @property
    def subgraphs(self) -> tuple[SubgraphRow, ...]:
        """The subgraphs that were exported."""
        return tuple(SubgraphRow(row["name"], row["device"], row["ops"], 0.0) for row in self.data["subgraphs"])

    def summary(self) -> list[Table | str]:
        """The subgraphs and notes, as the command line prints them."""
        return [str(self)]

    def __str__(self) -> str:
        rows = [f"  {row}" for row in self.subgraphs]
        return "\n".join([f"{self.data['model']}: imported, {counted(len(rows), 'subgraph')}", *rows, *self.notes])

    def __repr__(self) -> str:
        return f"<ImportedReport of {self.data['model']!r}>"
