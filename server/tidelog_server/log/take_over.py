"""Takes over a producer on a vchannel: raises its epoch, which fences the process that used it before."""

from tidelog_server.core.errors.forgotten import ProducerForgottenError
from tidelog_server.core.producers import UNKNOWN_PRODUCER, ProducerWindow
from tidelog_server.core.tenants import Tenant
from tidelog_server.log.channel_log import LogContext, VchannelLog
from tidelog_server.log.committer import WindowChange


def take_over(
    node: LogContext, vchannel: VchannelLog, producer_id: str, tenant: Tenant, *, accept_forgotten: bool
) -> tuple[ProducerWindow, tuple[WindowChange, ...]]:
    """Raise the epoch of a producer in memory; return its window, and the rows that make the change durable.

    Ordering: the rows must be submitted in the same step of the event loop. An append that was accepted before is
    written before them, and an append of an older epoch is refused from now on.

    Raises:
        ProducerForgottenError: It is unknown and may have been evicted, and ``accept_forgotten`` is not set. Nothing
            happened.
    """
    key = (vchannel.vchannel_id, producer_id)
    if not accept_forgotten and node.producers.may_be_forgotten(key):
        raise ProducerForgottenError(vchannel=vchannel.name, producer_id=producer_id)
    window = (node.producers.window(key) or UNKNOWN_PRODUCER).opened(tenant)
    return window, node.producers.put(key, window)
