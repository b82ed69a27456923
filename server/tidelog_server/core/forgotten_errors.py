"""Domain errors about names of which a table has evicted what it knew; part of the tree in ``core.errors``."""

from tidelog_server.core.errors import Effect, TidelogServerError


class ProducerForgottenError(TidelogServerError):
    """A producer is unknown, and its window may have been evicted. Nothing was appended now.

    The effect of a batch is unknown: an earlier append of it may be in the log.
    """

    effect = Effect.UNKNOWN

    def __init__(self, *, vchannel: str, producer_id: str) -> None:
        super().__init__(
            f"producer '{producer_id}' is unknown on {vchannel}, where producers of such names were evicted, so its "
            "batches may be in the log: read back what is there, then open it with accept_forgotten to number from 1, "
            "or take a producer id that was never used",
            vchannel=vchannel, producer_id=producer_id,
        )  # fmt: skip


class ApplicationForgottenError(TidelogServerError):
    """An application is unknown, and its last commit may have been evicted. Nothing was committed now.

    The effect of its version is unknown: an earlier commit of it may be in the log.
    """

    effect = Effect.UNKNOWN

    def __init__(self, app_id: str, *, app_version: int) -> None:
        super().__init__(
            f"application '{app_id}' is unknown, and last commits of applications of this principal were evicted, so "
            f"version {app_version} may be in the log: read back what is there, then commit with is_first if it is not",
            app_id=app_id, app_version=app_version,
        )  # fmt: skip


class ConsumeForgottenError(TidelogServerError):
    """A call of Consume is repeated and not remembered, and may have been evicted. No position moved now.

    The effect of the call is unknown: the first one may have taken messages, which no other caller gets.
    """

    effect = Effect.UNKNOWN

    def __init__(self, group: str, vchannel: str, *, consume_id: int) -> None:
        super().__init__(
            f"the server has forgotten whether the call {consume_id} took messages of group '{group}' on {vchannel}, "
            "for more callers came since than it remembers: see what is missing, and seek the group there",
            group=group, vchannel=vchannel, consume_id=consume_id,
        )  # fmt: skip
