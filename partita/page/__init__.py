"""The report page: one HTML file that shows a partitioned graph, the reasons for its borders, and the times of a run."""

from partita.page.writing import report_page

__all__ = ["report_page"]
