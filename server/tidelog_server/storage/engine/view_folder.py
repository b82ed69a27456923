"""The folder of a view: locked as a data folder, and distinguished from one by its FORMAT.

FORMAT has two lines: the format of the view, and the name of the log. A data folder, which may be the only copy of its
log, is never taken for a view, nor a view for a data folder.
"""

import shutil
from pathlib import Path
from typing import Final

from tidelog_server.storage.format.data_folder import VIEW_STAMP, DataFolder, lock_data_folder
from tidelog_server.storage.format.folder_errors import DataFolderError, folder_error

_FORMAT_LINE: Final = f"{VIEW_STAMP.decode()}1"


class ViewFolder:
    """A folder for a view of a log, whose lock this process holds until ``close``.

    Attributes:
        folder: The locked folder.
        close: Releases the lock. Idempotent.
        problem: Why its view cannot be used; empty if it can, or if the folder is new.
        is_usable: True if it has a view of the log, as far as its files tell.
    """

    def __init__(self, folder: DataFolder, log_name: str) -> None:
        """Look at the folder.

        Raises:
            DataFolderError: It has something else than a view.
            OSError: It could not be read.
        """
        self.folder = folder
        self.close = folder.close
        self._stamp = f"{_FORMAT_LINE}\n{log_name}\n".encode()
        try:
            stamp = folder.format_path.read_bytes()
        except FileNotFoundError:
            # Raises if it has other files.
            self.is_usable, self.problem = folder.is_finished(), ""
            return
        if not stamp.startswith(VIEW_STAMP):
            raise DataFolderError(
                f"{folder.path} is a data folder, which is not the view of a log in an engine: choose another folder "
                "as storage.data_dir. Nothing was changed"
            )
        self.problem = self._problem_of(stamp)
        self.is_usable = not self.problem

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def database_path(self) -> Path:
        """The folder of the database in it."""
        return self.folder.database_path

    def make_new(self) -> None:
        """Delete the view if there is one, and make an empty folder for another one. Raises OSError."""
        # Ordering: the name of the log last, so that it never names one whose view is not there.
        if self.database_path.exists():
            shutil.rmtree(self.database_path)
        self.folder.stamp(self._stamp)
        self.folder.make_folder(self.database_path)

    def _problem_of(self, stamp: bytes) -> str:
        if stamp == self._stamp:
            return "" if self.database_path.is_dir() else "its database is missing"
        format_line, _, log_line = stamp.decode("utf-8", "backslashreplace").partition("\n")
        if format_line != _FORMAT_LINE:
            return f"it has the format '{format_line}', and this server uses '{_FORMAT_LINE}'"
        return f"it is a view of the log '{log_line.rstrip()}'"


def lock_view_folder(path: Path, log_name: str) -> ViewFolder:
    """Make the folder if needed and take its lock, without waiting.

    Raises:
        FolderInUseError: Another process has the lock.
        DataFolderError: The folder cannot be used, or has something else than a view.
    """
    folder = lock_data_folder(path)
    try:
        return ViewFolder(folder, log_name)
    except OSError as error:
        folder.close()
        raise folder_error(path, error) from error
    except BaseException:
        folder.close()
        raise
