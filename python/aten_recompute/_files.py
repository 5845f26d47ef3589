"""Writes files that are complete or not there at all."""

import contextlib
import os
import stat
import tempfile


def write_whole(path: str | os.PathLike[str], content: bytes, function: str) -> None:
    """Writes a file under a temporary name and renames it.

    Args:
        path: the path of the file; one of that name is replaced and hands on its permissions, and where it is a
            symbolic link, what it leads to is replaced.
        content: what it is to hold.
        function: the name of the function that was called, for the message.

    Raises:
        OSError: the file cannot be written; the message, one line, names it and the reason. A file that was there
            stays as it was.
    """
    target = os.fspath(path)
    temporary = None
    try:
        place = os.path.realpath(target)
        folder, name = os.path.split(place)
        mask = os.umask(0)
        os.umask(mask)
        permissions = 0o666 & ~mask
        if os.path.exists(place):
            mode = os.stat(place).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(None, "it is a folder")
            if not stat.S_ISREG(mode):
                raise OSError(None, "it is a device or a pipe, not a file")
            permissions = stat.S_IMODE(mode)
        handle, temporary = tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=".part", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, permissions)
        os.replace(temporary, place)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        reason = error.strerror or str(error)
        # Not chained: the error names the file of the user, not the temporary one.
        raise type(error)(f"{function}: cannot write {target}: {reason}") from None
