"""Real data sets with their sources and licences, and functions that read and encode records."""

from studies.data.records import Classification, Table, split
from studies.data.shipped import load
from studies.data.table_csv import NoisyTable, read_table
from studies.data.user_csv import read_csv

__all__ = ["Classification", "NoisyTable", "Table", "load", "read_csv", "read_table", "split"]
