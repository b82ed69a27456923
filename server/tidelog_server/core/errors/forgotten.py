"""Errors about names whose state may have been evicted from a table."""

from tidelog_server.core.errors import Effect, TidelogServerError


class ProducerForgottenError(TidelogServerError, reason="PRODUCER_FORGOTTEN"):
    """A producer is unknown, and its window may have been evicted. This request appended nothing.

    The effect of the batch is unknown: an earlier append of it may be in the log.
    """

    effect = Effect.UNKNOWN

    def __init__(self, *, vchannel: str, producer_id: str) -> None:
        super().__init__(
            f"producer '{producer_id}' is unknown on {vchannel}, where producers with such names were evicted, so its "
            "batches may be in the log: read the log, then open the producer with accept_forgotten to number from 1, "
            "or use a producer id that was never used",
            vchannel=vchannel, producer_id=producer_id,
        )  # fmt: skip


class ApplicationForgottenError(TidelogServerError, reason="APPLICATION_FORGOTTEN"):
    """An application is unknown, and its last commit may have been evicted. This request committed nothing.

    The effect of the version is unknown: an earlier commit of it may be in the log.
    """

    effect = Effect.UNKNOWN

    def __init__(self, app_id: str, *, app_version: int) -> None:
        super().__init__(
            f"application '{app_id}' is unknown, and last commits of applications of this principal were evicted, so "
            f"version {app_version} may be in the log: read the log, then commit with is_first if it is not there",
            app_id=app_id, app_version=app_version,
        )  # fmt: skip


class ConsumeForgottenError(TidelogServerError, reason="CONSUME_FORGOTTEN"):
    """A retried Consume call is unknown, and may have been evicted. This request moved no position.

    The effect of the call is unknown: its first attempt may have taken messages, which no other caller receives.
    """

    effect = Effect.UNKNOWN

    def __init__(self, group: str, vchannel: str, *, consume_id: int) -> None:
        super().__init__(
            f"the server no longer knows whether call {consume_id} took messages of group '{group}' on {vchannel}, "
            "because it remembers a limited number of callers: find the missing messages, and seek the group there",
            group=group, vchannel=vchannel, consume_id=consume_id,
        )  # fmt: skip


class BroadcastForgottenError(TidelogServerError, reason="BROADCAST_FORGOTTEN"):
    """A broadcast id is so old that the node does not know whether it was accepted."""

    effect = Effect.UNKNOWN

    def __init__(self, *, broadcast_id: int, floor: int) -> None:
        super().__init__(
            f"broadcast {broadcast_id} may have been accepted and finished: ids up to {floor} are forgotten. Read the "
            "log to find out, or get a new id from AllocateTicks if this one was never sent before",
            broadcast_id=broadcast_id, floor=floor,
        )  # fmt: skip
