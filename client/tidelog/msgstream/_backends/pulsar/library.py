"""The library ``pulsar-client``, and its errors as those of this package."""

from typing import Any, Final

from tidelog.errors import (
    ChannelNotFoundError,
    ClosedError,
    DeadlineError,
    Effect,
    InvalidRequestError,
    OverloadedError,
    PermissionDeniedError,
    ServerError,
    TidelogError,
    UnauthenticatedError,
    UnavailableError,
)
from tidelog.msgstream._errors import MessageTooLargeError, StreamFencedError, StreamStateError

_CLASSES: Final[dict[str, type[TidelogError]]] = {
    "AlreadyClosed": ClosedError,
    "AuthenticationError": UnauthenticatedError,
    "AuthorizationError": PermissionDeniedError,
    "BrokerMetadataError": UnavailableError,
    "BrokerPersistenceError": UnavailableError,
    "ConnectError": UnavailableError,
    "ConsumerBusy": StreamFencedError,
    "ErrorGettingAuthenticationData": UnauthenticatedError,
    "InvalidConfiguration": InvalidRequestError,
    "InvalidTopicName": InvalidRequestError,
    "InvalidUrl": InvalidRequestError,
    "LookupError": UnavailableError,
    "MessageTooBig": MessageTooLargeError,
    "NotConnected": UnavailableError,
    "ProducerBlockedQuotaExceededError": OverloadedError,
    "ProducerBlockedQuotaExceededException": OverloadedError,
    "ProducerBusy": StreamFencedError,
    "ProducerFenced": StreamFencedError,
    "ServiceUnitNotReady": UnavailableError,
    "SubscriptionNotFound": ChannelNotFoundError,
    "Timeout": DeadlineError,
    "TooManyLookupRequestException": OverloadedError,
    "TopicNotFound": ChannelNotFoundError,
    "TopicTerminated": StreamStateError,
}
TRANSIENT: Final = (UnavailableError, DeadlineError, OverloadedError)
"""What a broker that is away or busy answers: readers and positions wait for it."""
_ADVICE: Final = {
    "AuthenticationError": "check the token or the client certificate",
    "AuthorizationError": "let the operator grant the role produce and consume on the namespace",
    "ConnectError": "check the address, that the broker runs, and TLS",
    "MessageTooBig": "split the message, or raise maxMessageSize of the broker",
    "ProducerFenced": "a later stream or ticker has taken over: stop this one, or use another subscription",
    "Timeout": "check that the broker runs; see effect",
    "TopicNotFound": "create the topic, or let the broker create topics",
}
# Outcomes of a send after which the message may be in the topic nevertheless.
_UNKNOWN_OUTCOMES: Final = ("Timeout", "AlreadyClosed", "NotConnected", "UnknownError")


def pulsar() -> Any:
    """Return the library.

    Raises:
        StreamStateError: It is not installed.
    """
    try:
        import pulsar as library
    except ImportError as error:
        raise StreamStateError(
            f"streams on Pulsar need pulsar-client, which cannot be imported ({error}): run `pip install '.[pulsar]'` "
            "in a clone of Tidelog"
        ) from error
    return library


def error_of(result: str, what: str, topic: str = "", *, is_send: bool = False) -> TidelogError:
    """Return the error for a result of the library, by its name.

    Args:
        result: Its name, such as ``TopicNotFound``.
        what: What failed, such as ``the read``.
        topic: The topic; empty without one.
        is_send: Whether a message may be in the topic nevertheless.
    """
    kind = _CLASSES.get(result, ServerError)
    advice = f": {_ADVICE[result]}" if result in _ADVICE else ""
    effect: Effect = "unknown" if is_send and result in _UNKNOWN_OUTCOMES else "none"
    of_topic = f" of {topic}" if topic else ""
    return kind(f"{what}{of_topic} failed, Pulsar answered {result}{advice}", effect=effect, values={"name": topic})


def error_of_exception(error: Exception, what: str, topic: str = "") -> TidelogError:
    """Return the error for an exception of the library."""
    found = error_of(type(error).__name__, what, topic)
    found.__cause__ = error
    return found
