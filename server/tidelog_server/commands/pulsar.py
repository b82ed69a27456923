"""What commands share that use a Pulsar broker."""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.msgstream import PulsarBroker

DEFAULT_PULSAR_NAMESPACE: Final = "public/default"
PULSAR_TOKEN: Final = "TIDELOG_PULSAR_TOKEN"
"""The variable with the token for Pulsar."""
_OPERATION_TIMEOUT_S: Final = 10


def pulsar_broker(address: str, admin_url: str | None, namespace: str) -> "PulsarBroker":
    """Return a connection with the token of the environment."""
    from tidelog.msgstream import PulsarBroker

    return PulsarBroker(
        address, admin_url=admin_url, namespace=namespace, token=os.environ.get(PULSAR_TOKEN),
        operation_timeout_s=_OPERATION_TIMEOUT_S,
    )  # fmt: skip
