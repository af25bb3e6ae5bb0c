"""Private folders of the user, and the list of the study files that the user has run: hashes and paths.

A store references the files of its study and of added methods. Unless the user names a file on the command line, its
code runs only if the user has run the same code (but for comments and docstrings) at the same path before, or, with
``--accept-edited-study``, the version that the store records. Modules of its folder that it imports are part of its
code. It may read other files there, so the path is checked.
"""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

import platformdirs

_NAME = "study-files.txt"  # format of sha256sum: a hash, two spaces, a path


def trust_file(sha256: str, path: str) -> None:
    """Add a study file, by its absolute path and hash, to the list; do nothing if the list cannot be written."""
    if "\n" in path or is_trusted_file(sha256, path):
        return
    line = f"{sha256}  {path}\n".encode(errors="backslashreplace")
    with suppress(OSError):  # in a read-only home folder, for example, the user then names the file in each command
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(private_folder("state") / _NAME, flags, 0o600)
        try:
            with suppress(OSError):  # the file system may not support locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # the lock is held until the descriptor is closed
            size = os.fstat(descriptor).st_size
            is_cut_off = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            # write in one call, so that lines of several processes are not mixed
            os.write(descriptor, b"\n" * is_cut_off + line)
        finally:
            os.close(descriptor)


def is_trusted_file(sha256: str, path: str) -> bool:
    """Return True if the user has run this content at this path, according to a list that only the user can write."""
    line = f"{sha256}  {path}".encode(errors="backslashreplace")
    try:
        file: Path = private_folder("state") / _NAME
        require_private(file)
        return line in file.read_bytes().split(b"\n")
    except OSError:
        return False


_HOME = "DPSTUDIES_HOME"


def private_folder(kind: Literal["cache", "state"]) -> Path:
    """Return, and create, a folder that only the user can change: of ``$DPSTUDIES_HOME``, or of the user's platform."""
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
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise PermissionError(f"{path} must not be a link; remove it")
    if status.st_uid != os.getuid():
        raise PermissionError(f"{path} must belong to the user who runs this program; remove it, or set DPSTUDIES_HOME")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} can be written by other users; remove it, or run: chmod go-w {path}")
    for parent in path.parents:
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise PermissionError(
                f"{path} can be replaced by other users, since all may write to {parent}; set DPSTUDIES_HOME"
            )
