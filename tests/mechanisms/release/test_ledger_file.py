"""Tests of the budgets of ledger files, and of the guarantees that they add."""

import fcntl
import json
import os
import pickle
import signal
import threading
import time
from decimal import Decimal

import numpy as np
import pytest

from mechanisms import ConcentratedGuarantee, Guarantee, LedgerFile, Neighbouring, Status
from mechanisms.release import Loss
from tests.mechanisms.refusals import assert_refused

ADDED = Neighbouring.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize("budget", [0.3, "0.3", Decimal("0.3"), np.float64(0.3), (0.3, 0), Loss(Decimal("0.3"))])
def test_budgets_are_the_decimal_numbers_that_they_print_as(tmp_path, budget):
    ledger = LedgerFile(tmp_path / "l", budget)
    for _ in range(3):
        ledger.spend(Guarantee(0.1), "x")  # in doubles 0.1 + 0.1 + 0.1 > 0.3
    assert ledger.check() == LedgerFile(tmp_path / "l").check() == (0, 0)
    assert LedgerFile(tmp_path / "l", budget).check() == (0, 0)


@pytest.mark.parametrize("budget", [(3, 1e-6), "3:1e-6", ("3", Decimal("1e-6")), Loss(Decimal(3), Decimal("1e-6"))])
def test_budgets_of_delta_are_pairs_or_text(tmp_path, budget):
    ledger = LedgerFile(tmp_path / "l", budget)
    assert ledger.check(Guarantee(1.0, 1e-7)) == (2, Decimal("9e-7"))
    assert str(ledger.check()) == "3 and a delta of 1e-06"
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize(
    "budget", ["", "much", "3:", (), (1, 0, 0), [3], {}, True, 0, -1, np.inf, 10**400, (1, 1), "1:-1"]
)
def test_invalid_budgets_are_refused(tmp_path, budget):
    assert_refused(lambda: LedgerFile(tmp_path / "l", budget), "budget must be")


@pytest.mark.parametrize("arguments", [(3,), (b"l",), (None,)])
def test_invalid_paths_and_labels_are_refused(arguments):
    assert_refused(lambda: LedgerFile(*arguments), "the path of a ledger must be")
    assert_refused(lambda: LedgerFile("l", label=3), "label must be a string, got 3")


def test_guarantees_that_a_ledger_cannot_add_are_refused(tmp_path):
    ledger = LedgerFile(tmp_path / "l", (3, 1e-6))
    for guarantee, message in (
        (ConcentratedGuarantee(0.5), "a ledger adds"),
        (Guarantee(1.0, 1e-9, ADDED), "delta must be 0 under add/remove in a ledger"),
    ):
        for action in (ledger.check, lambda guarantee: ledger.spend(guarantee, "x")):
            with pytest.raises(ValueError, match=message):
                action(guarantee)
    assert ledger.check() == (3, Decimal("1e-6"))


def test_entries_name_guarantees_that_are_not_proved_or_not_of_replacement(tmp_path):
    ledger = LedgerFile(tmp_path / "l", (9, 1e-3))
    for guarantee in (Guarantee(1.0), Guarantee(0.7, relation=ADDED), Guarantee(1.0, 1e-8, status=Status.CONJECTURED)):
        ledger.spend(guarantee, "x")
    lines = [json.loads(line) for line in (tmp_path / "l").read_text().splitlines()]
    stated = [(line["epsilon"], line.get("guarantee")) for line in lines[1:]]
    assert stated == [(1.0, None), (1.4, "0.7-DP under add/remove"), (1.0, "(1, 1e-08)-DP, conjectured")]
    assert ledger.check() == (Decimal("5.6"), Decimal("0.00099999"))


def test_release_without_epsilon_keeps_the_ledger_readable(tmp_path):
    ledger = LedgerFile(tmp_path / "l", (1, 1e-3))
    ledger.spend(Guarantee(0.0, 1e-4), "x")
    assert ledger.check() == (1, Decimal("9e-4"))


def test_printed_losses_are_rounded_up_and_rests_down(tmp_path):
    """An epsilon that a message allows is accepted."""
    ledger = LedgerFile(tmp_path / "l", 1)
    ledger.spend(Guarantee(0.87654322), "x")
    assert ledger.describe().endswith("l, 0.123456 of the budget left")
    with pytest.raises(ValueError, match=r"epsilon must be at most 0\.123456, .*, got 0\.123457"):
        ledger.check(Guarantee(0.123456789))
    ledger.spend(Guarantee(0.123456), "y")
    assert str(Guarantee(1.0000049)) == "1.00001-DP"


def test_ledgers_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "l"
    path.write_text('{"budget": 3.0}\n{"epsilon": 1.0, "release": "mean of x", "time": "2026-11-26T00:00:00+00:00"}\n')
    assert LedgerFile(path).check() == (2, 0)
    assert LedgerFile(path).describe() == f"{path}, 2 of the budget left"


def test_change_of_the_folder_uses_the_same_file(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    ledger = LedgerFile("x.ledger", budget=1)
    ledger.spend(Guarantee(1.0), "first")
    monkeypatch.chdir(tmp_path / "b")
    for same in (ledger, pickle.loads(pickle.dumps(ledger))):
        with pytest.raises(ValueError, match=r"the budget of 1 in the ledger x\.ledger is spent"):
            same.spend(Guarantee(1.0), "second")
    assert not (tmp_path / "b" / "x.ledger").exists()


def test_replaced_file_receives_the_entry_of_a_writer_that_waits(tmp_path):
    """An editor or a restore replaces the file while a writer waits for the lock of the old one."""
    path = tmp_path / "l"
    ledger = LedgerFile(path, budget=1)
    ledger.spend(Guarantee(0.1), "first")
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    with open(path, "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=ledger.spend, args=(Guarantee(0.5), "second"))
        writer.start()
        time.sleep(0.2)
        os.replace(copy, path)
    writer.join(10)
    assert ledger.check().epsilon == Decimal("0.4")


@pytest.mark.parametrize("text", ["x", "a,b", '["budget", 3]', "budget", '{"a": 1}', "{}", '{"a": 1, "b"'])
def test_other_file_without_a_line_end_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "people.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"line 1 of the ledger .* must be a JSON object"):
        LedgerFile(path, budget=3).spend(Guarantee(1.0), "release")
    assert path.read_text() == text


def test_odd_files_are_refused_or_read(tmp_path):
    path = tmp_path / "l"
    LedgerFile(path, budget=3).spend(Guarantee(1.0), "release")
    path.write_text(path.read_text() + "\n\n")
    assert LedgerFile(path).check().epsilon == 2  # blank lines at the end
    LedgerFile(path).spend(Guarantee(0.5), "release")
    assert LedgerFile(path).check().epsilon == 1.5
    path.write_text("\n")
    LedgerFile(path, budget=4).spend(Guarantee(1.0), "release")
    assert LedgerFile(path).check().epsilon == 3
    path.write_text('{"budget": 1e999999999}\n')
    assert_refused(lambda: LedgerFile(path).check(Guarantee(1.0)), "must be a JSON object")
    os.mkfifo(tmp_path / "pipe")
    for use in (lambda ledger: ledger.check(), lambda ledger: ledger.spend(Guarantee(1.0), "release")):
        with pytest.raises(ValueError, match=r"cannot use the ledger .*: not a regular file"):
            use(LedgerFile(tmp_path / "pipe", budget=3))


def test_child_that_is_forked_during_an_entry_does_not_keep_the_lock(tmp_path, monkeypatch):
    ledger = LedgerFile(tmp_path / "l", budget=3)
    children, fsync = [], os.fsync

    def fork(descriptor):
        if not children:
            children.append(os.fork() or os._exit(time.sleep(5) or 0))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fork)
    ledger.spend(Guarantee(1.0), "first")
    start = time.perf_counter()
    ledger.spend(Guarantee(1.0), "second")
    elapsed = time.perf_counter() - start
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    assert elapsed < 3


def test_file_that_is_replaced_again_and_again_ends_the_release(tmp_path, monkeypatch):
    monkeypatch.setattr("mechanisms.release.ledger._is_same", lambda *arguments: False)
    with pytest.raises(ValueError, match=r"cannot use the ledger .*: the file is replaced by another one again and"):
        LedgerFile(tmp_path / "l", budget=3).spend(Guarantee(1.0), "release")
