"""Tests of the summaries of reference methods that the package contains."""

from dataclasses import replace

import pytest

from studies import STUDIES
from studies.benchmark.shipped import FOLDER, MOST_BYTES, outdated, read_shipped

SHIPPED = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
RENEW = "run the study at published scale, then: python -m studies.benchmark.shipped FOLDER"


def require_present(study):
    references = read_shipped(study.name)
    reason = outdated(references.spec, study)
    assert not reason, f"the shipped references of {study.name} are outdated ({reason}); {RENEW}"
    for name, panel in references.panels.items():
        assert list(panel.coordinates) == [
            f.name for f in (*study.panel(name).factors, *study.panel(name).method_factors)
        ]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_references_are_those_of_the_present_study(name):
    study = STUDIES[name]
    require_present(study)
    panel = next(iter(read_shipped(name).panels))
    first = study.panel(panel)
    methods = (replace(first.methods[0], version=first.methods[0].version + 1), *first.methods[1:])
    for changed in (  # controls
        replace(study, version=study.version + 1),
        replace(study, seed=study.seed + 1),
        replace(study, panels=(replace(first, methods=methods),)),
    ):
        with pytest.raises(AssertionError, match=r"outdated .* python -m studies.benchmark.shipped FOLDER"):
            require_present(changed)


def test_shipped_references_are_small_and_of_known_studies():
    assert set(SHIPPED) <= set(STUDIES)
    assert sum(path.stat().st_size for path in FOLDER.glob("*")) <= MOST_BYTES
