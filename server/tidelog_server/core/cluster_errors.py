"""Domain errors of a cluster: who owns what, and metadata that cannot be reached. See ``core.errors``."""

from tidelog_server.core.errors import Effect, StorageFailedError, TidelogServerError


class MetadataUnavailableError(TidelogServerError):
    """The metadata store does not answer, or no longer takes this node's changes; or no leader hands out ticks."""

    def __init__(self, cause: str, *, effect: Effect = Effect.NONE, message: str = "") -> None:
        super().__init__(
            message
            or f"the metadata store cannot be used ({cause}): appends and scans of owned channels go on while the "
            "node's lease lasts; repeat this later",
            cause=cause,
        )
        self.effect = effect

    @classmethod
    def without_ticks(cls, waited_s: float, cause: str) -> "MetadataUnavailableError":
        """Return the error of a node that the leader has given no ticks. Nothing happened."""
        return cls(
            cause, message=f"no ticks from the leader of the cluster for {waited_s:.0f} s ({cause}): repeat this later"
        )


class OwnershipLostError(TidelogServerError):
    """The node may no longer speak for its channels: its lease ran out. It registers anew by itself.

    An append that was in flight then has an unknown effect: it may be in the log once the node is back.
    """

    def __init__(self, node_id: str, *, effect: Effect = Effect.NONE) -> None:
        super().__init__(
            f"the lease of node '{node_id}' ran out, so it serves none of its channels until it has a new one: repeat "
            "this in a moment, and look at the node and at its way to etcd if it lasts",
            node_id=node_id,
        )
        self.effect = effect

    def with_effect(self, effect: Effect) -> "OwnershipLostError":
        """Return the same failure for a request that it had this effect on."""
        return OwnershipLostError(self.values["node_id"], effect=effect)


LogFailure = StorageFailedError | OwnershipLostError
"""Why a log has stopped."""


class NotOwnerError(TidelogServerError):
    """Another node owns the channel. Nothing happened."""

    def __init__(self, name: str, *, node_id: str, address: str, term: int) -> None:
        where = f"at {address}" if address else "which is not running"
        super().__init__(
            f"the channel of '{name}' belongs to node '{node_id}' {where}: ask there",
            name=name, node_id=node_id, address=address, term=term,
        )  # fmt: skip


class NotLeaderError(TidelogServerError):
    """Another node hands out ticks. Nothing happened."""

    def __init__(self, *, node_id: str, address: str) -> None:
        super().__init__(
            f"ticks are handed out by node '{node_id}' at {address}" if node_id else "no node hands out ticks just now",
            node_id=node_id, address=address,
        )  # fmt: skip
