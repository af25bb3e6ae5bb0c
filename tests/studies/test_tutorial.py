"""Test of the tutorial notebook, which is stored without outputs."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def notebook():
    """Return the tutorial notebook."""
    return nbformat.read(ROOT / "studies/tutorial.ipynb", as_version=4)


def execute(notebook, folder):
    """Execute a notebook in a folder with this version of the packages; return the outputs of its code cells."""
    client = NotebookClient(notebook, resources={"metadata": {"path": folder}})
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_tutorial_is_stored_without_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.slow
def test_tutorial_draws_two_figures(notebook, tmp_path):
    outputs = execute(notebook, tmp_path)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert 0.4 < float(outputs[-1].data["text/plain"]) < 0.6  # a factor of 4 in trials
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failing_cell_fails_the_tutorial(notebook, tmp_path):
    notebook.cells = notebook.cells[1:2]
    notebook.cells[0].source += "\nassert STUDIES == {}"
    with pytest.raises(CellExecutionError):
        execute(notebook, tmp_path)
