"""Cases of all studies; a study without a case fails the tests."""

from tests.studies.counts import cases as counts
from tests.studies.inference import cases as inference
from tests.studies.noisy_tables import cases as noisy_tables
from tests.studies.regression import cases as regression
from tests.studies.renyi import cases as renyi
from tests.studies.stopping import cases as stopping

CASES = {**counts.CASES, **inference.CASES, **renyi.CASES, **regression.CASES, **stopping.CASES, **noisy_tables.CASES}
"""Study -> case."""
