"""Errors of a cluster: ownership, and unavailable metadata."""

from tidelog_server.core.errors import Effect, StorageFailedError, TidelogServerError


class MetadataUnavailableError(TidelogServerError, reason="METADATA_UNAVAILABLE"):
    """The metadata store does not answer or rejects this node's changes, or no leader allocates ticks."""

    def __init__(self, cause: str, *, effect: Effect = Effect.NONE, message: str = "") -> None:
        super().__init__(
            message
            or f"the metadata store cannot be used ({cause}): appends and scans of owned channels continue while the "
            "node's lease lasts; retry later",
            cause=cause,
        )
        self.effect = effect

    def with_effect(self, effect: Effect) -> "MetadataUnavailableError":
        """Return a copy with another effect."""
        return MetadataUnavailableError(self.values["cause"], effect=effect, message=self.message)

    @classmethod
    def without_ticks(cls, waited_s: float, cause: str) -> "MetadataUnavailableError":
        """Return the error of a node that received no ticks from the leader. Nothing happened."""
        return cls(
            cause, message=f"no ticks from the leader of the cluster for {waited_s:.0f} s ({cause}): retry later"
        )


class OwnershipLostError(TidelogServerError, reason="OWNERSHIP_LOST"):
    """The node no longer serves its channels: its lease expired, or it has lost its log in an engine.

    In a cluster it registers again automatically. An append in flight at that moment has an unknown effect: it may be
    in the log once the node is back. ``is_claimed`` means that another process has claimed the log.
    """

    def __init__(
        self, node_id: str, *, effect: Effect = Effect.NONE, message: str = "", is_claimed: bool = False
    ) -> None:
        super().__init__(
            message
            or f"the lease of node '{node_id}' expired, so it serves none of its channels until it has a new one: "
            "retry shortly; if this persists, check the node and its connection to etcd",
            node_id=node_id,
        )
        self.effect = effect
        self.is_claimed = is_claimed

    @classmethod
    def by_claim(cls, log: str, term: int) -> "OwnershipLostError":
        """Return the error of a process whose log another process has claimed in ``term``."""
        return cls(
            log,
            message=f"another process has claimed the log '{log}', in term {term}: this one serves none of its "
            "channels any more; send the request to that process",
            is_claimed=True,
        )

    @classmethod
    def by_unknown_record(cls, log: str, cause: str) -> "OwnershipLostError":
        """Return the error of a process that does not learn whether the log has a record of it.

        The log has to be claimed again, by any process: that cuts the record off, or finds it.
        """
        return cls(
            log,
            message=f"it is unknown whether the log '{log}' has a record of this process ({cause}): it serves none of "
            "its channels until the log is claimed again",
        )

    def with_effect(self, effect: Effect) -> "OwnershipLostError":
        """Return a copy with another effect."""
        return OwnershipLostError(
            self.values["node_id"], effect=effect, message=self.message, is_claimed=self.is_claimed
        )


LogFailure = StorageFailedError | OwnershipLostError
"""Why a log has stopped."""


def cause_of(failure: LogFailure) -> str:
    """Return why a log has stopped, without advice."""
    return str(failure.values["cause"]) if isinstance(failure, StorageFailedError) else failure.message


class NotOwnerError(TidelogServerError, reason="NOT_OWNER"):
    """Another node owns the channel. Nothing happened."""

    def __init__(self, name: str, *, node_id: str, address: str, term: int) -> None:
        where = f"at {address}" if address else "which is not running"
        super().__init__(
            f"the channel of '{name}' belongs to node '{node_id}' {where}: send the request there",
            name=name, node_id=node_id, address=address, term=term,
        )  # fmt: skip


class NotLeaderError(TidelogServerError, reason="NOT_LEADER"):
    """Another node allocates ticks. Nothing happened."""

    def __init__(self, *, node_id: str, address: str) -> None:
        super().__init__(
            f"ticks are allocated by node '{node_id}' at {address}" if node_id else "no node allocates ticks now",
            node_id=node_id, address=address,
        )  # fmt: skip
