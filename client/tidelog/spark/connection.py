"""How Spark's driver and executors connect to the server: by options, else by the driver's environment."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import number_of

if TYPE_CHECKING:
    from tidelog import Client

ENDPOINT_VARIABLE: Final = "TIDELOG_ENDPOINT"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
DEFAULT_SERVER_TIMEOUT_S: Final = 300
MAX_SERVER_TIMEOUT_S: Final = 1_800
"""The client's maximum for ``Retry.give_up_s``."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials of the server; the same on the driver and on executors.

    Attributes:
        endpoint: ``host:port``, or a comma-separated list of nodes of a cluster.
        token, token_file: Access token, or the file that has it; ``token`` takes precedence. Empty if not set.
        tls_ca, tls_cert, tls_key: Files; all empty for plaintext.
        server_timeout_s: Seconds that reads wait for an unreachable server.
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
        """The nodes as a tuple."""
        return tuple(each.strip() for each in self.endpoint.split(",") if each.strip())

    def client(self) -> "Client":
        """Return a client of the endpoint, a single server. Raises OptionError if the options contradict each other."""
        # Imported here, so that gRPC is loaded where it is used, after Spark's forks.
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
    """Return the connection that the options define, with the driver's environment for those not set.

    Raises:
        OptionError: A number is invalid, or a file is named by a URL, which as a path would be a folder ``s3:``.
    """

    def of(name: str, variable: str) -> str:
        return options.get(name) or os.environ.get(variable, "")

    def file_of(name: str, variable: str) -> str:
        return _local(name, of(name, variable))

    # An option takes precedence over both variables: `token` over TIDELOG_TOKEN_FILE, `tokenFile` over TIDELOG_TOKEN.
    token_file = options.get("tokenFile") or ("" if options.get("token") else os.environ.get("TIDELOG_TOKEN_FILE", ""))
    return Connection(
        endpoint=of("endpoint", ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT,
        token=options.get("token") or ("" if token_file else os.environ.get("TIDELOG_TOKEN", "")),
        token_file=_local("tokenFile", token_file),
        tls_ca=file_of("tlsCa", "TIDELOG_TLS_CA"),
        tls_cert=file_of("tlsCert", "TIDELOG_TLS_CERT"),
        tls_key=file_of("tlsKey", "TIDELOG_TLS_KEY"),
        server_timeout_s=number_of(options, "serverTimeout", DEFAULT_SERVER_TIMEOUT_S, 0, MAX_SERVER_TIMEOUT_S),
    )


def _local(name: str, path: str) -> str:
    if _SCHEME.match(path):
        raise OptionError(f"the option '{name}' is {path!r}: expected the path of a file of each executor")
    return path
