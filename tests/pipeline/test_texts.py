"""Tests that texts of users, such as errors and names of files, are stored and shown whatever they contain."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline import Factor, resume, run
from pipeline.blocks.evaluate import Block, Status, evaluate_block
from pipeline.errors import BadInputError
from pipeline.execution.checks import rerun_trial
from pipeline.faults import explain
from pipeline.redact import MOST_CHARACTERS, format_error, redact_text, short_repr, shorten, text_of
from pipeline.store.datasets import open_results
from tests.pipeline.helpers import compute_into, make_study, write_study_file


class MuteError(Exception):
    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __str__


def study_that_raises(make_error):
    def evaluate(data, setting, streams):
        raise make_error()

    return make_study(evaluate, trials=2)


def first_error(make_error):
    study = study_that_raises(make_error)
    with ThreadPoolExecutor(1) as thread:
        (outcome,) = thread.submit(evaluate_block, study, Block("p", 0, range(2)), study.panels[0].settings()).result()
    assert (outcome.status == Status.FAILED).all()
    return outcome.error[0]


def test_text_that_cannot_be_formed():
    note = "<MuteError without a text: its __{}__ raises KeyboardInterrupt>"
    assert text_of(MuteError()) == note.format("str")
    assert text_of(MuteError(), repr) == note.format("repr")
    assert format_error(MuteError()) == explain(MuteError()) == f"MuteError: {note.format('str')}"
    assert note.format("str") in short_repr(MuteError())
    with pytest.raises(BadInputError, match="n must be an integer, got <MuteError without a text"):
        Factor("n", (MuteError(),), "size", "int")
    with pytest.raises(BadInputError, match=r"name of a factor must .*got '<MuteError without a text"):
        Factor(MuteError(), (1,), "size")


def test_surrogates_become_escapes():
    error = ValueError("file \udcff")
    assert redact_text(str(error)) == "file \\udcff"
    assert (format_error(error), explain(error)) == ("ValueError: file \\udcff",) * 2
    assert first_error(lambda: error).splitlines()[0].endswith("ValueError: file \\udcff")


@pytest.mark.slow
def test_long_text_is_cut():
    assert shorten("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS
    assert shorten("ab " * 5000) == f"{'ab ' * 3333}... (15,000 characters)"
    stored = first_error(lambda: ValueError("x" * 10**8))
    assert stored.endswith(" ... (100,000,012 characters)")
    assert len(stored) < 3 * MOST_CHARACTERS


def test_secret_in_the_text_that_is_cut_is_not_stored():
    padding = "x " * (MOST_CHARACTERS // 2 - 10)
    stored = first_error(lambda: ValueError(f"{padding} s3://me:{'hush' * 20}@bucket"))
    assert "hush" not in stored


@pytest.mark.slow
def test_long_traceback_is_cut():
    def first():
        return second()

    def second():
        return first()

    stored = first_error(first)
    assert "more entries]" in stored
    assert stored.splitlines()[0].endswith("RecursionError: maximum recursion depth exceeded")
    assert stored.count("return second()") < 60


def test_interrupt_by_the_user_is_no_failure(tmp_path):
    """Python raises it in the main thread; elsewhere, a KeyboardInterrupt is an exception of the method."""
    assert threading.current_thread() is threading.main_thread()
    study = study_that_raises(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        evaluate_block(study, Block("p", 0, range(1)), study.panels[0].settings())
    assert "KeyboardInterrupt" in first_error(KeyboardInterrupt)
    failing = compute_into(tmp_path / "s.zarr", study_that_raises(ArithmeticError))
    (again,) = rerun_trial(failing, study, "p", {}, 0)
    assert again.computed.status.tolist() == [Status.FAILED]


@pytest.mark.parametrize("name", [b"st\xff.py", b"d\xff/st.py"])
def test_study_file_with_a_name_that_is_not_in_utf_8(tmp_path, name):
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_study_file(os.fsdecode(path), before="if 1 in streams.trials: raise ValueError(__file__)", trials=3)
    store = run(os.fsdecode(path), tmp_path / "s.zarr", progress=False)
    assert store.attributes["study_reference"].endswith(name.decode(errors="backslashreplace").replace("\\x", "\\udc"))
    assert resume(tmp_path / "s.zarr", retry=[Status.FAILED], progress=False).complete
    ds = open_results(tmp_path / "s.zarr")["p"]
    assert ds.status.values.ravel().tolist() == [1, 2, 1]
    assert "ValueError" in str(ds.error.values.ravel()[1])
