"""Tests of the options --until, --at-most and --within: exit codes, forecasts, states and pages."""

from pathlib import Path

import pytest

STUDY = str(Path(__file__).parents[1] / "pipeline/precision_study.py")
SMALL = (STUDY, "--panel", "p", "--set", "sd=1")


@pytest.mark.slow
def test_a_precision_from_plan_to_report(command, printed, tmp_path):
    out = printed("plan", *SMALL, "--until", "mcse(x) <= 0.07")
    assert "p, sd=1, wide" in out
    assert list(tmp_path.iterdir()) == []
    assert "without --at-most" not in out
    assert (
        "without --at-most, a run ends at the declared numbers of trials (p: 1,000)"
        in (command("plan", *SMALL, "--until", "mcse(x) <= 0.01")[1])
    )
    code, out, _ = command("run", *SMALL, "--store", "s.zarr", "--until", "mcse(x) <= 0.07")
    assert (code, "complete" in out) == (0, True)
    code, out, _ = command("status", "s.zarr")
    assert (code, "not asked for" in out) == (0, True)
    code, out, _ = command("trial", "s.zarr", "--panel", "p", "--cell", "sd=1", "--trial", "120")
    assert (code, out.count("not asked for"), "not stored yet" in out) == (0, 2, False)
    code, out, err = command("extend", "s.zarr", "--until", "mcse(x) <= 1e-6", "--at-most", "400")
    assert (code, out) == (3, "")
    assert "needs about" in err
    assert "pending" not in err
    assert command("report", "s.zarr")[0] == 0
    page = (tmp_path / "s.html").read_text()
    assert "Monte Carlo error reached against mcse(x) &lt;= 1e-6" in page


@pytest.mark.slow
def test_verdicts_after_looks_state_the_error_level_that_was_spent(command, printed):
    code, _, _ = command("run", STUDY, "--store", "s.zarr", "--until", "claims", "--at-most", "200")
    assert code == 0
    out = printed("report", "s.zarr", "--verbose")
    assert "passed: Narrow draws have positive means." in out
    assert "Look 1 spends 3.9e-05 of the error level 6.3e-05." in out
    assert "Look 2 spends 8.7e-08 of the error level 5.7e-07." in out


@pytest.mark.slow
def test_method_that_fails_on_all_trials_leaves_a_command_that_continues(command, tmp_path):
    text = Path(STUDY).read_text().replace("noise = np", 'assert name != "narrow"\n        noise = np')
    (tmp_path / "failing.py").write_text(text)
    small = "failing.py", "--panel", "p", "--set", "sd=1"
    code, _, err = command("run", *small, "--store", "s.zarr", "--until", "mcse(x) <= 0.09")
    assert code == 3
    assert "0 trials are pending" not in err
    assert "correct the failing method" in err
    assert command("status", "s.zarr")[0] == 3
    code, _, err = command("resume", "s.zarr")
    assert code == 3
    assert "1 of 3 errors is not finite: p, sd=1, narrow has 0 values after 100 trials" in err
    code, out, _ = command("status", "s.zarr")
    assert code == 1
    assert "was not reached" in out
    assert "dpstudies extend" in out
