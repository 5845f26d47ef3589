"""Writes files that are complete or not there at all."""

import contextlib
import os
import tempfile


def write_whole(path: str | os.PathLike[str], content: bytes, function: str) -> None:
    """Writes a file under a temporary name and renames it.

    Args:
        path: the path of the file; one of that name is replaced.
        content: what it is to hold.
        function: the name of the function that was called, for the message.

    Raises:
        OSError: the file cannot be written; the message, one line, names it and the reason. A file that was there
            stays as it was.
    """
    target = os.fspath(path)
    temporary = None
    try:
        folder, name = os.path.split(os.path.abspath(target))
        if os.path.isdir(target):
            raise IsADirectoryError(None, "it is a folder")
        handle, temporary = tempfile.mkstemp(prefix=f".{name[:40]}.", suffix=".part", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        reason = error.strerror or str(error)
        # Not chained: the error names the file of the user, not the temporary one.
        raise type(error)(f"{function}: cannot write {target}: {reason}") from None
