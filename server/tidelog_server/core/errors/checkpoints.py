"""Errors of checkpoints; part of the tree in ``core.errors``."""

from tidelog_server.core.errors import TidelogServerError


class CheckpointUnsupportedError(TidelogServerError):
    """The node cannot make checkpoints: its log or its metadata is not in a data folder."""

    def __init__(self) -> None:
        super().__init__(
            "this server cannot make checkpoints: its log or its metadata is not in a data folder; checkpoints need "
            "storage.kind = rocksdb and metadata.kind = embedded"
        )


class CheckpointNotExistError(TidelogServerError):
    """No checkpoint has this name."""

    def __init__(self, checkpoint_id: str) -> None:
        super().__init__(
            f"checkpoint '{checkpoint_id}' does not exist: its lease expired, it was released, or the server was "
            "restarted; make another one",
            checkpoint_id=checkpoint_id,
        )


class CheckpointFailedError(TidelogServerError):
    """A checkpoint could not be made; the log is not affected."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the checkpoint could not be made ({cause}): check the disk of the data folder", cause=cause)
