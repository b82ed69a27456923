"""Errors of reading the store that do not prove data loss, and of checkpoints."""

from tidelog_server.core.errors import TidelogServerError


class StorageUnreadableError(TidelogServerError, reason="STORAGE_UNREADABLE"):
    """The system refused to read the store: no file descriptor, no memory, no permission, a failing disk.

    No data is known to be damaged or missing, and a retry may succeed. DataLossError reports proven loss.

    Attributes:
        errno: Error number of the system.
    """

    def __init__(self, cause: str, errno: int) -> None:
        super().__init__(
            f"the store could not be read ({cause}): no data is known to be lost; retry, and if this persists, check "
            "the disk and the server's resource limits",
            cause=cause,
        )
        self.errno = errno


class LogSilentError(TidelogServerError, reason="LOG_SILENT"):
    """The engine of the log does not confirm writes, so nothing is changed meanwhile. Nothing happened."""

    def __init__(self, silent_s: float) -> None:
        super().__init__(
            f"the engine of the log has not confirmed a write for {silent_s:.0f} s, so changes are refused until it "
            "does; reads continue: retry later; if this persists, check its brokers and the connection to them",
            cause=f"no confirmation for {silent_s:.0f} s",
        )


class CheckpointUnsupportedError(TidelogServerError, reason="CHECKPOINT_UNSUPPORTED"):
    """The node cannot make checkpoints: its log or its metadata is not in a data folder."""

    def __init__(self, engine: str = "") -> None:
        """``engine`` is the kind of the engine that has the log, such as ``kafka``; empty without one."""
        super().__init__(
            f"this server cannot make checkpoints: its log is in {engine}, and its data folder is a view; `tidelog "
            "engine export` makes a data folder of the log, on which backups work"
            if engine
            else "this server cannot make checkpoints: its log or its metadata is not in a data folder; checkpoints "
            "need storage.kind = rocksdb and metadata.kind = embedded"
        )


class CheckpointNotExistError(TidelogServerError, reason="CHECKPOINT_NOT_EXIST"):
    """No checkpoint has this name."""

    def __init__(self, checkpoint_id: str) -> None:
        super().__init__(
            f"checkpoint '{checkpoint_id}' does not exist: its lease expired, it was released, or the server was "
            "restarted; make another one",
            checkpoint_id=checkpoint_id,
        )


class CheckpointFailedError(TidelogServerError, reason="CHECKPOINT_FAILED"):
    """A checkpoint could not be made; the log is not affected."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the checkpoint could not be made ({cause}): check the disk of the data folder", cause=cause)
