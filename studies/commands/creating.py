"""The commands ``new``, which write a running file to start from: a mechanism, another method, or a study."""

import keyword
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import BadInputError, command
from studies.commands.help import HeadedGroup
from studies.commands.options import argument
from studies.output import say

app = typer.Typer(
    cls=HeadedGroup,
    rich_markup_mode=None,
    help="Write a commented file to change: a study, method or mechanism.",
)

Name = Annotated[str, argument("NAME", "Name of the file without .py, such as my_mechanism.")]


@app.command()
def mechanism(name: Name) -> None:
    """Write NAME.py with a mechanism that releases counts."""
    path = _write("mechanism", name)
    say(f"audit: {command('audit', f'{path}:MECHANISM', '--prior', '1:1', '--n', '20', '--epsilon', '1')}")
    say(f"compare on simulated data: {command('run', path, '--store', f'{name}.zarr')}")


@app.command()
def study(name: Name) -> None:
    """Write NAME.py with a study that compares two methods."""
    path = _write("study", name)
    say(f"run: {command('run', path, '--store', f'{name}.zarr')}")
    say(f"page: {command('report', f'{name}.zarr')}")


@app.command()
def posterior(name: Name) -> None:
    """Write NAME.py with a posterior given a noisy sum."""
    _write_method("posterior", name, "calibration")


@app.command()
def table(name: Name) -> None:
    """Write NAME.py with an inference of noisy tables."""
    _write_method("table", name, "noisy-tables")


@app.command()
def regression(name: Name) -> None:
    """Write NAME.py with a regression given a noisy Gram matrix."""
    _write_method("regression", name, "regression-inference")


@app.command()
def draw(name: Name) -> None:
    """Write NAME.py with a private draw for logistic regression."""
    _write_method("draw", name, "private-mcmc", "--panel", "simulated", "--trials", "20")


def _write_method(kind: str, name: str, study: str, *words: str) -> None:
    path, scale = _write(kind, name), words or ("--scale", "quick")
    say(f"run: {command('run', study, '--add', path, *scale, '--store', f'{name}.zarr')}")
    say(f"page: {command('report', f'{name}.zarr')}")


def _write(kind: str, name: str) -> Path:
    """Write the template of a kind under a name in the current folder, which must not contain the file."""
    path = Path(f"{name}.py")
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name in _TAKEN:
        raise BadInputError(
            f"the name must be that of a new Python module, of letters, digits and '_', got {name!r}; e.g. my_{kind}"
        )
    template = resources.files("studies.commands").joinpath("templates", f"{kind}.py").read_text()
    try:
        with path.open("x") as file:
            file.write(template.replace("template", name))
    except FileExistsError:
        raise BadInputError(f"{path} must not exist, because it would be overwritten; choose another name") from None
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}; change to a folder of your own") from error
    say(f"wrote {path}")
    return path


_TAKEN = ("mechanisms", "pipeline", "studies")  # a file with one of these names would hide the package
