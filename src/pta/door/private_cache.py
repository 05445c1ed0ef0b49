"""Folders in the user's cache, and those for compiled code, which nobody else may write: loading code runs it."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from stat import S_IRWXG, S_IRWXO, S_IWGRP, S_IWOTH


def default_cache() -> Path:
    """`$PTA_CACHE`, else `$XDG_CACHE_HOME/pta`, else `~/.cache/pta`."""
    if own := os.environ.get("PTA_CACHE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pta"
    except RuntimeError:  # a user without a home can keep nothing
        return Path(os.devnull) / "pta"


def private_cache(name: str) -> Path | None:
    """The folder of this name in the user's cache, made with the rights 0700.

    None where somebody else could write to it, to what is made in it, or replace one of its parents, and where it
    cannot be made. A link is followed first, and what it leads to is checked.
    """
    try:
        folder = (default_cache() / name).resolve()
        if not all(map(_made_safe, [*reversed(folder.parents), folder])) or not os.access(folder, os.W_OK):
            return None
        # files in it have the rights of the user's umask, which may let a group write
        is_usable = folder.is_dir() and not folder.stat().st_mode & (S_IRWXG | S_IRWXO)
    except (OSError, RuntimeError):  # it is read-only, or links lead in a circle
        return None
    return folder if is_usable else None


@cache
def keep_code_private() -> None:
    """Let torch and Triton keep what they compile where only this user can write, unless the environment names a place.

    To be called before either compiles. Torch's own choice is a folder that all users share. Where nothing is private,
    code is kept for this process alone.
    """
    folder = private_cache("torch")
    if folder is None:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shared = f"{tempfile.gettempdir()}/torchinductor_"
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        # nothing, also in the place of a name, or torch's own choice, which it writes there
        if (os.environ.get(name) or shared).startswith(shared):
            os.environ[name] = str(folder / name.split("_")[0].lower())


def _made_safe(folder: Path) -> bool:
    """Whether only this user and the system's can write to a folder, which is made if it does not exist."""
    if not folder.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (S_IWGRP | S_IWOTH)
