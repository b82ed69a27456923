"""What a consumer calls for each message."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from tidelog.gazette.messages import Envelope
from tidelog.gazette.publisher import AsyncPublisher, Publisher

_T = TypeVar("_T")

AsyncHandler: TypeAlias = Callable[[Envelope, _T, AsyncPublisher], Awaitable[None]]
"""Handles a message: changes state with the open transaction of the store, and publishes with ``publish_uncommitted``.

It must not commit or roll back the transaction, must not call ``build_ack_intents``, and may be called again with the
same message after a crash, a rollback or a failed commit; nothing of the earlier call then remains. An exception ends
the consumer's run and discards the transaction.
"""

Handler: TypeAlias = Callable[[Envelope, _T, Publisher], None]
"""The synchronous form of ``AsyncHandler``."""
