"""Test of the tutorial notebook, which is stored with outputs."""

import copy
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]
PATH = ROOT / "studies/tutorial.ipynb"


@pytest.fixture
def notebook():
    """Return the tutorial notebook."""
    return nbformat.read(PATH, as_version=4)


def execute(notebook, folder):
    """Execute a notebook in a folder with this version of the packages."""
    client = NotebookClient(notebook, resources={"metadata": {"path": folder}})
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    return notebook


def texts(notebook):
    """Return the printed texts and shown values of all cells, and the number of figures."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    shown = [output.get("text") or output.data["text/plain"] for output in outputs]
    return [text for text in shown if not text.startswith("<Figure")], figures


def test_tutorial_is_stored_with_outputs_and_figures(notebook):
    printed, figures = texts(notebook)
    assert figures == 4
    assert len(printed) >= 5
    assert PATH.stat().st_size <= 300_000


@pytest.mark.slow
def test_stored_outputs_of_the_tutorial_are_current(notebook, tmp_path):
    executed = execute(copy.deepcopy(notebook), tmp_path)
    assert texts(executed) == texts(notebook)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failing_cell_fails_the_tutorial(notebook, tmp_path):
    notebook.cells = notebook.cells[1:2]
    notebook.cells[0].source += "\nassert age is None"
    with pytest.raises(CellExecutionError):
        execute(notebook, tmp_path)
