"""Real data sets with their sources and licences, and functions that read and encode records."""

from studies.data.records import Classification, Table, split
from studies.data.shipped import load
from studies.data.user_csv import read_csv
from studies.own_data.published_table import NoisyTable, read_table

__all__ = ["Classification", "NoisyTable", "Table", "load", "read_csv", "read_table", "split"]
