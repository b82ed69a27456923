"""An attack of ``benchmarks security``: a name, what it needs, and the coroutine that the hostile process runs."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.siege.server import BenchServer
from tidelog import AsyncClient, TlsOptions


@dataclass(frozen=True, slots=True)
class Order:
    """What the hostile process is given; it travels as JSON.

    Attributes:
        grpc_endpoint, http_endpoint: ``host:port`` of the server's two ports.
        ca: The file that vouches for the server; None for plaintext.
        token: What the attack's grants permit; None for an attack without credentials.
        files: The server's limit of open files; None for that of the benchmark.
        facts: What ``prepare`` of the attack returned.
    """

    grpc_endpoint: str
    http_endpoint: str
    ca: str | None = None
    token: str | None = None
    files: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def client(self) -> AsyncClient:
        """Return a client with the attack's credentials."""
        return AsyncClient(self.grpc_endpoint, tls=None if self.ca is None else TlsOptions(self.ca), token=self.token)

    def channel(self) -> grpc.aio.Channel:
        """Return a gRPC channel with a connection of its own; ``metadata`` has the credentials."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        if self.ca is None:
            return grpc.aio.insecure_channel(self.grpc_endpoint, options=options)
        return grpc.aio.secure_channel(self.grpc_endpoint, TlsOptions(self.ca).channel_credentials(), options=options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call with the attack's credentials."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True, slots=True)
class Assault:
    """A run of an attack, in the hostile process.

    Attributes:
        order: What it attacks.
        counts: What it did so far, by name; reported as ``hostile_<name>``.
        under_way: To be called once, as soon as the attack has its full strength: measuring begins then.
    """

    order: Order
    counts: Counter[str]
    under_way: Callable[[], None]


def _no_settings(_: Path) -> Mapping[str, str]:
    return {}


async def _nothing(_: BenchServer) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        name: As ``--attack`` takes it.
        what: What it does, in one sentence.
        run: Attacks until it is cancelled, and then closes whatever it has open. A server that refuses, closes or
            resets is no failure of the attack: ``run`` counts that and continues. It runs once in each round.
        grants: What its token permits; None for an attack without credentials.
        is_open: Whether the server has neither TLS nor tokens.
        settings: Settings of the server that differ from the defaults.
        configure: Called with an empty folder before the server starts; returns more settings, such as files in it.
        files: The server's limit of open files; None for that of the benchmark.
        disk_bytes: The free-disk limit is set so that the server may use about so much; None for the default limit.
        prepare: Called before the attack with the server; what it returns, JSON, gets to ``run`` as ``order.facts``.
        check: Called after the attack with the server; returns more figures for the report.
    """

    name: str
    what: str
    run: Callable[[Assault], Awaitable[None]]
    grants: Sequence[str] | None = None
    is_open: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    configure: Callable[[Path], Mapping[str, str]] = _no_settings
    files: int | None = None
    disk_bytes: int | None = None
    prepare: Callable[[BenchServer], Awaitable[Mapping[str, Any]]] = _nothing
    check: Callable[[BenchServer], Awaitable[Mapping[str, float]]] = _nothing
