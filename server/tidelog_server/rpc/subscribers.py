"""Who subscribes a group, from the access of the running call."""

from tidelog_server.broker.group_types import ANYBODY, Subscriber
from tidelog_server.rpc.access import current_access
from tidelog_server.security.grants import HOLDERS


def subscriber() -> Subscriber:
    """Return the caller as one who subscribes groups.

    A group holds retention back where its subscriber may hold it, or may change it.
    """
    access = current_access()
    if access is None:
        return ANYBODY
    return Subscriber(access.tenant, lambda channel: access.may(HOLDERS, channel))
