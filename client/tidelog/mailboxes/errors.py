"""Errors of calls on several deliveries, which the client raises by itself."""

from tidelog.errors import MailboxError, TidelogError
from tidelog.mailboxes.deliveries import DeliveryFields


class DeliveriesRefusedError(MailboxError):
    """The locks of some deliveries of a call were refused; the others were acknowledged or extended.

    What to do: check its ``failures``.

    Attributes:
        failures: Each refused delivery, with the reason.
    """

    failures: tuple[tuple[DeliveryFields, TidelogError], ...] = ()


class UnsettledDeliveriesError(MailboxError):
    """``next`` or ``anext`` on a worker, while ``concurrency`` of its deliveries are unsettled.

    What to do: confirm a delivery with ``ack()``, then ask for the next one.
    """
