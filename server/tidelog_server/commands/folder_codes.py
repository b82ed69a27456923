"""Exit codes of errors of a data folder."""

from typing import Final

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.storage.format.folder_errors import (
    DataFolderError,
    DiskFailedError,
    FolderForbiddenError,
    FolderFullError,
    FolderInUseError,
    NoResourcesError,
    StoreUncheckedError,
)

_CODES: Final[dict[type[DataFolderError], ExitCode]] = {
    DataFolderError: ExitCode.DATA_DIR_UNUSABLE,
    DiskFailedError: ExitCode.STORAGE_FAILED,
    FolderForbiddenError: ExitCode.NO_PERMISSION,
    FolderFullError: ExitCode.DISK_FULL,
    FolderInUseError: ExitCode.DATA_DIR_IN_USE,
    NoResourcesError: ExitCode.NO_RESOURCES,
    StoreUncheckedError: ExitCode.NOT_CHECKED,
}


def code_of_folder(error: DataFolderError) -> ExitCode:
    """Return the exit code of an error of a data folder."""
    return _CODES[type(error)]
