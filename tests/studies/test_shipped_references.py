"""Tests of the summaries of reference methods that the package contains."""

from dataclasses import replace

import numpy as np
import pytest

import pipeline
from studies import STUDIES
from studies.benchmark import shipped

ACCEPTING = [name for name in STUDIES if any(panel.accepts for panel in STUDIES[name].panels)]
RENEW = "run the study at published scale, then: python -m studies.benchmark.shipped FOLDER"


def require_present(study):
    references = shipped.read_shipped(study.name)
    assert references is not None, f"{study.name} has no shipped references; {RENEW}"
    reason = shipped.outdated(references.spec, study)
    assert not reason, f"the shipped references of {study.name} are outdated ({reason}); {RENEW}"
    for name, panel in references.panels.items():
        declared = study.panel(name)
        assert list(panel.cells.dims) == [factor.name for factor in (*declared.factors, *declared.method_factors)]
        not_private = [method.name for method in declared.methods if not method.is_private]
        assert panel.attributes.get("not_private", "").splitlines() == not_private, RENEW


@pytest.mark.parametrize("name", ACCEPTING)
def test_shipped_references_are_those_of_the_present_study(name):
    require_present(STUDIES[name])


def test_references_of_another_version_seed_method_or_criterion_are_outdated(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    study = STUDIES["hellinger-accuracy"]
    options = {"trials": 2, "panels": ["k2", "k3"], "values": {"n": [100]}, "progress": False}
    pipeline.run(study, tmp_path / "hellinger-accuracy.zarr", **options)
    shipped.write_shipped(tmp_path)
    require_present(study)
    first, *others = study.panels
    newer = replace(first.methods[0], version=first.methods[0].version + 1)
    added = replace(first.methods[0], name="another")
    for changed, reason in (
        (replace(study, version=study.version + 1), "version: stored 1, now 2"),
        (replace(study, seed=study.seed + 1), "seed: stored "),
        (replace(study, criteria=replace(study.criteria, distance="gamma")), "criteria.distance: stored "),
        (replace(study, panels=(replace(first, version=7), *others)), ", now 7"),
        (replace(study, panels=(replace(first, methods=(newer, *first.methods[1:])), *others)), "panels.k2.methods."),
        (replace(study, panels=(replace(first, methods=(*first.methods, added)), *others)), "now present"),
        (replace(study, panels=tuple(others)), "panel k2 is absent"),
    ):
        with pytest.raises(AssertionError, match=r"outdated \(.*python -m studies.benchmark.shipped FOLDER") as failure:
            require_present(changed)
        assert reason in str(failure.value)


def test_trials_are_shipped_of_losses_that_rise_and_fall_with_the_data():
    shipped_trials = {
        (name, panel): set(references.n_paired)
        for name in ACCEPTING
        for panel, references in shipped.read_shipped(name).panels.items()
    }
    for (name, panel), measures in shipped_trials.items():
        loss = STUDIES[name].criteria.loss_of(STUDIES[name].panel(panel))
        # distances are those of noise, or of the draws; variances and real records have errors of few trials
        others = "edge", "normal-unknown-variance", "one-feature", "real-two"
        is_simulated = name in ("calibration", "noisy-tables", "exact-inference", "regression-inference")
        is_paired = (is_simulated and panel not in others) or panel == "abalone-splits"
        assert (loss in measures) == is_paired, (name, panel)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "panel", "values"),
    [
        ("noisy-tables", "mechanisms", {"k": [10], "epsilon": [1.0], "noise": ["geometric"]}),
        ("calibration", "binomial", {"n": [100], "epsilon": [0.1]}),
    ],
)
def test_shipped_trials_are_those_of_a_run_with_fewer_trials_and_cells(run_panel, name, panel, values):
    study, references = STUDIES[name], shipped.read_shipped(name).panels[panel]
    loss = study.criteria.loss_of(study.panel(panel))
    stored = run_panel(study, panel, trials=3, algorithm=["naive"], **values)[loss].transpose(..., "trial").values
    cell = references.cells.sel({dim: [value] for dim, [value] in values.items()}).item()
    trials = references.summaries["naive"].trials[loss][cell]
    np.testing.assert_allclose(stored.reshape(len(trials), 3), trials[:, :3], rtol=1e-6)


def test_shipped_references_are_small():
    assert sum(path.stat().st_size for path in shipped.FOLDER.glob("*")) <= 2_000_000
