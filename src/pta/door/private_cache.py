"""Folders in the user's cache, and those for compiled code, which nobody else may write: loading code runs it."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from stat import S_IRWXG, S_IRWXO, S_ISVTX, S_IWGRP, S_IWOTH

CODE_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PYTORCH_KERNEL_CACHE_PATH")
"""What names the folders of torch's compiler, of Triton, and of the kernels that torch itself compiles for a GPU."""


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
        folder = Path(tempfile.mkdtemp(dir=_temporary()))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shared = f"{tempfile.gettempdir()}/torchinductor_"
    for name in CODE_FOLDERS:
        # nothing, also in the place of a name, or torch's own choice, which it writes there
        if (os.environ.get(name) or shared).startswith(shared):
            own = folder / name.split("_")[0].lower()
            own.mkdir(mode=0o700, exist_ok=True)
            os.environ[name] = str(own)


def _made_safe(folder: Path) -> bool:
    """Whether only this user and the system's can write to a folder, which is made if it does not exist."""
    if not folder.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
    return _is_safe(folder.lstat())


def _is_safe(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (S_IWGRP | S_IWOTH)


def _temporary() -> Path:
    """A folder for temporary files in which nobody else can replace what is this user's, if there is one."""
    usual = Path(tempfile.gettempdir()).resolve()
    places = usual, *(Path(name).resolve() for name in ("/tmp", "/var/tmp"))
    return next(filter(_keeps_names, places), usual)


def _keeps_names(place: Path) -> bool:
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    found = [folder.lstat() for folder in (place, *place.parents)]
    # where the bit is set that `/tmp` has, only owners rename and remove
    return all(_is_safe(one) or (one.st_uid in (0, os.geteuid()) and one.st_mode & S_ISVTX) for one in found)
