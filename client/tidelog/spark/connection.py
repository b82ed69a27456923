"""How Spark's driver and executors connect to the server: by options, else by its environment, or a context."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tidelog import ChannelOwner, Client, Cluster, Retry
from tidelog.settings.resolver import Given, Target, target_of
from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import number_of

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
DEFAULT_SERVER_TIMEOUT_S: Final = 300
MAX_SERVER_TIMEOUT_S: Final = 1_800
"""The client's maximum for ``Retry.give_up_s``."""


@dataclass(frozen=True, slots=True)
class Connection(Target):
    """Address and credentials of the server; the same on the driver and on executors.

    Attributes:
        server_timeout_s: Seconds that reads wait for an unreachable server.
        node_id: The node of a cluster that ``endpoint`` serves; empty for a server, or for any node.
        seeds: Nodes that know where that node is served later, as ``endpoint``.
    """

    server_timeout_s: int = DEFAULT_SERVER_TIMEOUT_S
    node_id: str = ""
    seeds: str = ""

    def of(self, owner: ChannelOwner) -> "Connection":
        """Return the connection to the owner of a channel, which was looked up at the nodes of this one."""
        if not owner.node_id:
            return replace(self, endpoints=self.endpoints[:1])
        return replace(self, endpoints=(owner.address,), node_id=owner.node_id, seeds=self.endpoint)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Provide a client of the endpoint; of a node, one that follows it to the process that serves it.

        Raises:
            OptionError: The options contradict each other.
        """
        try:
            options = self._client_options()
            if not self.node_id:
                opened: Client | Cluster = Client(self.endpoint, **options)
            else:
                # The address is one of the nodes to ask, last, for a cluster whose other nodes are not named.
                opened = Cluster(f"{self.seeds},{self.endpoint}", **options)
        except ValueError as error:
            raise OptionError(str(error)) from error
        with opened:
            if isinstance(opened, Cluster):
                yield opened.client_for(ChannelOwner("", self.node_id, self.endpoint, 0))
            else:
                yield opened

    def _client_options(self) -> dict[str, Any]:
        return {"tls": self.tls(), "token": self.token_source(), "retry": Retry(give_up_s=self.server_timeout_s)}


_OPTIONS: Final[Mapping[str, str]] = {
    "endpoint": "endpoint", "context": "context", "token": "token", "tokenFile": "token_file", "tlsCa": "tls_ca",
    "tlsCert": "tls_cert", "tlsKey": "tls_key",
}  # fmt: skip
"""The options of a connection, by name, and the values of ``Given`` that they are."""


def connection_of(options: Mapping[str, str]) -> Connection:
    """Return the connection that the options define, with the driver's environment or context for what is not set.

    Raises:
        OptionError: An address, a context or a number is invalid, or a file is named by a URL, which as a path would be
            a folder ``s3:``.
    """
    try:
        target = target_of(Given(**{name: options.get(option) or "" for option, name in _OPTIONS.items()}))
    except ValueError as error:
        raise OptionError(str(error)) from error
    for option in ("tokenFile", "tlsCa", "tlsCert", "tlsKey"):
        if _SCHEME.match(path := getattr(target, _OPTIONS[option])):
            raise OptionError(f"the option '{option}' is {path!r}: expected the path of a file of each executor")
    timeout_s = number_of(options, "serverTimeout", DEFAULT_SERVER_TIMEOUT_S, 0, MAX_SERVER_TIMEOUT_S)
    return Connection(**asdict(target), server_timeout_s=timeout_s)
