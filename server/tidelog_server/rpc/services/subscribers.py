"""The subscriber of a group, from the access of the current call."""

from tidelog_server.groups.types import DEFAULT_SUBSCRIBER, Subscriber
from tidelog_server.security.access import current_access
from tidelog_server.security.grants import HOLDERS


def subscriber() -> Subscriber:
    """Return the caller as a subscriber.

    A group holds retention back on the channels where its subscriber has a verb of HOLDERS.
    """
    access = current_access()
    if access is None:
        return DEFAULT_SUBSCRIBER
    return Subscriber(access.tenant, lambda channel: access.may(HOLDERS, channel))
