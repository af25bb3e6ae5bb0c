"""Processes of their own: Python code, and the command ``dpstudies``."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "from studies.cli import main; main()"


def run_python(code, *words, folder=".", **options):
    """Run code in a new process in a folder, from which it can import packages; it must end within two minutes."""
    path = os.pathsep.join([str(Path(folder).resolve()), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        **{"capture_output": True, "text": True, "timeout": 120, "cwd": folder, **options},
        env={**os.environ, "PYTHONPATH": path},
    )
