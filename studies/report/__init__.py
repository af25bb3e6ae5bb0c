"""HTML pages about one store and about a folder of stores, assembled from the same parts."""

from pipeline.results.verdicts import judge
from studies.report.collection import folder_page, write_collection
from studies.report.page import drawable
from studies.report.study import store_page, write_report, write_results
from studies.report.summaries import load_summaries, tabulate

__all__ = [
    "drawable",
    "folder_page",
    "judge",
    "load_summaries",
    "store_page",
    "tabulate",
    "write_collection",
    "write_report",
    "write_results",
]
