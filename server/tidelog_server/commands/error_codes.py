"""Exit codes of errors of the server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.storage.format.folder_errors import (
    DataFolderError,
    DiskFailedError,
    FolderForbiddenError,
    FolderFullError,
    FolderInUseError,
    NoResourcesError,
    StoreUncheckedError,
)

FOLDER_CODES: Final[dict[type[DataFolderError], ExitCode]] = {
    DiskFailedError: ExitCode.STORAGE_FAILED,
    FolderForbiddenError: ExitCode.NO_PERMISSION,
    FolderFullError: ExitCode.DISK_FULL,
    FolderInUseError: ExitCode.DATA_DIR_IN_USE,
    NoResourcesError: ExitCode.NO_RESOURCES,
    StoreUncheckedError: ExitCode.NOT_CHECKED,
    DataFolderError: ExitCode.DATA_DIR_UNUSABLE,
}
"""The base is the last one: see ``exit_codes_of``."""


@contextmanager
def exit_codes_of(codes: Mapping[type[Exception], ExitCode]) -> Iterator[None]:
    """Raise the errors in ``codes`` as CommandError. If one is of several of these classes, the first one counts."""
    try:
        yield
    except tuple(codes) as error:
        raise CommandError(str(error), next(codes[each] for each in codes if isinstance(error, each))) from error
