"""The report page: one HTML file that shows a partitioned graph, why it was cut so, and what a run takes."""

from partita.page.writing import report_page

__all__ = ["report_page"]
