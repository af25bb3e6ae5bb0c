"""Private folders of the user, for imported study files and for the list of study files that were run."""

import os
import stat
from pathlib import Path
from typing import Literal

import platformdirs

_HOME = "DPSTUDIES_HOME"


def private_folder(kind: Literal["cache", "state"]) -> Path:
    """Return a folder that only the user can change; create it if necessary.

    This is the folder of ``$DPSTUDIES_HOME`` with the name of its kind, or by default the user's cache or state folder
    on this platform.
    """
    home = os.environ.get(_HOME)
    if home:
        folder = Path(home).absolute() / kind
    else:
        folder = Path(getattr(platformdirs, f"user_{kind}_dir")("dpstudies", appauthor=False))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(folder)
    return folder


def require_private(path: Path) -> None:
    """Raise PermissionError unless a file or folder belongs to the user and no other user can change or replace it."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(f"{path} must not be a link; remove it")
    if found.st_uid != os.getuid():
        raise PermissionError(f"{path} must belong to the user who runs this program; remove it, or set DPSTUDIES_HOME")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} can be written by other users; remove it, or run: chmod go-w {path}")
    for parent in path.parents:
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise PermissionError(
                f"{path} can be replaced by other users, since all may write to {parent}; set DPSTUDIES_HOME"
            )
