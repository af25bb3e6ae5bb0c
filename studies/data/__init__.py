"""Real data sets with their sources and licences, and functions that read and encode records."""

from studies.data.records import Classification, Table, split
from studies.data.shipped import load
from studies.data.user_csv import read_csv

__all__ = ["Classification", "Table", "load", "read_csv", "split"]
