"""The windows of a producer that is opened on a vchannel or a channel (D-186). Pure."""

from collections.abc import Sequence

from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.forgotten import ProducerForgottenError
from tidelog_server.core.producers import UNKNOWN_PRODUCER, ProducerWindow


def opened_windows(
    names: Sequence[str],
    producer_id: str,
    windows: Sequence[ProducerWindow | None],
    tenant: Tenant,
    may_be_forgotten: Sequence[bool],
    *,
    is_channel: bool,
    accept_forgotten: bool,
) -> list[ProducerWindow]:
    """Return the windows after the opening, of the first of these vchannels: all with one epoch.

    A producer is on the vchannels that the channel had when it was opened there first, so that its keys stay where they
    are when the channel grows. If only the first vchannel knows it, without a number, that was the only one then.

    Args:
        names: The vchannel, or all vchannels of the channel, in order.
        producer_id: The producer.
        windows: Its windows on these; None where it is unknown.
        tenant: Tenant of the principal that opens it.
        may_be_forgotten: Whether a missing window may have been evicted, for each vchannel.
        is_channel: True if the request names the channel.
        accept_forgotten: True to open missing windows as new.

    Raises:
        ProducerForgottenError: A window is missing that was there, or may have been.
        InvalidRequestError: It was opened on the channel and is now opened on a vchannel, or the other way round.
    """
    recorded = max((window.vchannels for window in windows if window is not None), default=0)
    if recorded and not is_channel:
        raise InvalidRequestError(
            f"producer '{producer_id}' was opened on the channel of {names[0]}, for {recorded} vchannels: open it "
            "there, or use another producer id",
            field="vchannel",
        )
    count = recorded or _began_with(names, producer_id, windows)
    for name, window, may_be in zip(names[:count], windows, may_be_forgotten, strict=False):
        if window is None and not accept_forgotten and (may_be or recorded):
            raise ProducerForgottenError(vchannel=name, producer_id=producer_id)
    known = [window or UNKNOWN_PRODUCER for window in windows[:count]]
    epoch = max(window.epoch for window in known)
    vchannels = count if count > 1 else 0
    return [window._replace(epoch=epoch, vchannels=vchannels).opened(tenant) for window in known]


def _began_with(names: Sequence[str], producer_id: str, windows: Sequence[ProducerWindow | None]) -> int:
    known = [index for index, window in enumerate(windows) if window is not None]
    if not known:
        return len(windows)
    if known == [0]:
        return 1
    raise InvalidRequestError(
        f"producer '{producer_id}' was opened on {names[known[-1]]} alone: open it there, or use another producer id",
        field="producer_id",
    )
