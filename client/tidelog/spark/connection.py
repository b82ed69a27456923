"""How Spark's driver and its executors reach the server: options, else the environment of the driver."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog.spark.option_error import OptionError
from tidelog.spark.option_values import number_of

if TYPE_CHECKING:
    from tidelog import Client

ENDPOINT_VARIABLE: Final = "TIDELOG_ENDPOINT"
DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
DEFAULT_SERVER_TIMEOUT_S: Final = 300
MAX_SERVER_TIMEOUT_S: Final = 1_800
"""What a client takes as ``Retry.give_up_s``."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server; the same on the driver and on executors.

    Attributes:
        endpoint: ``host:port``, or those of several nodes of a cluster, divided by commas.
        token, token_file: What to show; of both the token itself. Empty for nothing.
        tls_ca, tls_cert, tls_key: Files; all empty for plaintext.
        server_timeout_s: How long reads wait for a server that is away.
    """

    endpoint: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    server_timeout_s: int = DEFAULT_SERVER_TIMEOUT_S

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The nodes one by one."""
        return tuple(each.strip() for each in self.endpoint.split(",") if each.strip())

    def client(self) -> "Client":
        """Return a client of the one server named. Raises OptionError if the options cannot be used together."""
        # Here, so that gRPC is loaded where it is used, after Spark's forks.
        from tidelog import Client, Retry, TlsOptions, TokenFile

        try:
            tls = None
            if self.tls_ca or self.tls_cert or self.tls_key:
                tls = TlsOptions(self.tls_ca or None, self.tls_cert or None, self.tls_key or None)
            token = self.token or (TokenFile(self.token_file) if self.token_file else None)
            retry = Retry(give_up_s=self.server_timeout_s)
            return Client(self.endpoint, tls=tls, token=token, retry=retry)
        except ValueError as error:
            raise OptionError(str(error)) from error


def connection_of(options: Mapping[str, str]) -> Connection:
    """Return how to reach the server, by options and else by the environment of the driver."""

    def of(name: str, variable: str) -> str:
        return options.get(name) or os.environ.get(variable, "")

    # What is given as an option wins, also over the other way to say the same in the environment.
    token_file = options.get("tokenFile") or ("" if options.get("token") else os.environ.get("TIDELOG_TOKEN_FILE", ""))
    return Connection(
        endpoint=of("endpoint", ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT,
        token=options.get("token") or ("" if token_file else os.environ.get("TIDELOG_TOKEN", "")),
        token_file=token_file,
        tls_ca=of("tlsCa", "TIDELOG_TLS_CA"),
        tls_cert=of("tlsCert", "TIDELOG_TLS_CERT"),
        tls_key=of("tlsKey", "TIDELOG_TLS_KEY"),
        server_timeout_s=number_of(options, "serverTimeout", DEFAULT_SERVER_TIMEOUT_S, 0, MAX_SERVER_TIMEOUT_S),
    )
