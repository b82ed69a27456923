"""Names of topics. Pure."""

from typing import Final

_PERSISTENT: Final = "persistent://"
_SEPARATOR: Final = "://"


def full_topic(name: str, namespace: str) -> str:
    """Return the full name of a topic, such as ``persistent://public/default/orders``."""
    return name if _SEPARATOR in name else f"{_PERSISTENT}{namespace}/{name}"


def positions_topic(topic: str, subscription: str) -> str:
    """Return the topic with the positions of a subscription on a topic."""
    return f"{topic}-tidelog-{subscription}"


def ticks_topic(topic: str) -> str:
    """Return the topic that the writer of a topic's ticks holds, with its last tick."""
    return f"{topic}-tidelog-ticks"


def admin_path(topic: str) -> str:
    """Return the path of a topic in the administration API."""
    return f"/admin/v2/{topic.replace(_SEPARATOR, '/')}"
