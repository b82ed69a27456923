"""Errors of calls on several deliveries, and of blobs."""

from tidelog.errors import MailboxError, TidelogError, text_value
from tidelog.mailboxes.deliveries import DeliveryFields


class DeliveriesRefusedError(MailboxError):
    """The locks of some deliveries of a call were refused; the others were acknowledged or extended.

    Attributes:
        failures: Each refused delivery, with the reason.
    """

    failures: tuple[tuple[DeliveryFields, TidelogError], ...] = ()


class UnsettledDeliveriesError(MailboxError):
    """``next`` or ``anext`` on a worker, while ``concurrency`` of its deliveries are unsettled: call ``ack()``."""


class BlobNotFoundError(TidelogError, reasons=("REASON_BLOB_NOT_EXIST",)):
    """No blob is stored under this key: store it again."""

    key = text_value("The key, in hexadecimal digits.")
