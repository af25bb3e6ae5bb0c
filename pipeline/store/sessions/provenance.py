"""Provenance of results: package versions, machine and source revision."""

import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import threadpoolctl

from pipeline.redact import redact_text

PACKAGES = ("numpy", "scipy", "numba", "dask", "distributed", "xarray", "zarr")


def now() -> str:
    """Return the current UTC time, to the second, in ISO 8601 format."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def version(package: str) -> str:
    """Return the version of an installed package, whose metadata are read once per process."""
    return metadata.version(package)


def versions() -> dict[str, str]:
    """Return the versions of packages that results may depend on."""
    packages = {name: version(name) for name in ("dpstudies", *PACKAGES)}
    return {**packages, "python": platform.python_version()}


def describe(study_file: str | None) -> dict[str, Any]:
    """Describe this process for the history of a store: command without secrets, versions, machine and git commit."""
    extensions = cast(dict[str, Any], np.show_config(mode="dicts"))["SIMD Extensions"]
    return {
        "command": redact_text(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        "versions": versions(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "cpu_features": [*extensions["baseline"], *extensions["found"]],
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in threadpoolctl.threadpool_info()}),
        **({} if study_file is None else _git(Path(study_file))),
    }


def _git(file: Path) -> dict[str, Any]:
    """Return the git commit of a file's repository and its dirty state, or an empty dict if the file is not tracked."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *words], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": bool(git("status", "--porcelain", "--", ":/"))}
    except (OSError, subprocess.SubprocessError):
        return {}
