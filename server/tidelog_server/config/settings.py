"""Every setting of the server with its default and bounds. One class is one section of the file.

A setting has one name in three spellings: ``durability`` under ``[storage]`` in the file,
``TIDELOG_STORAGE__DURABILITY`` in the environment, ``--storage.durability`` as a flag.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field

from tidelog_server.core.limits import MAX_BATCH_BYTES_CEILING, MAX_KEEPALIVE_US, Limits

_DEFAULT_LIMITS = Limits()

Port = Annotated[int, Field(ge=0, le=65_535)]


class Section(BaseModel):
    """A frozen section that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerSettings(Section):
    """``[server]``: where the server listens and how it ends."""

    host: str = Field("127.0.0.1", min_length=1, description="address that gRPC listens on")
    grpc_port: Port = Field(7420, description="port of gRPC; 0 takes any free one")
    http_host: str = Field("127.0.0.1", min_length=1, description="address that health and metrics listen on")
    http_port: Port = Field(7421, description="port of health and metrics; 0 takes any free one")
    shutdown_grace_s: float = Field(10.0, ge=0, le=3_600, description="seconds that calls in flight get")
    insecure: bool = Field(False, description="allows other machines in, unencrypted")


class StorageSettings(Section):
    """``[storage]``: where messages live."""

    kind: Literal["rocksdb", "memory"] = Field("rocksdb", description="log store; memory forgets at exit")
    data_dir: Path = Field(Path("tidelog-data"), description="folder of the data, made when it is missing")
    durability: Literal["sync", "os"] = Field("sync", description="what an ack promises: on disk, or in the OS")
    accept_head_loss: bool = Field(
        False, description="start although HEAD is lost, and with it the proof that nothing else is; use once"
    )


class MetadataSettings(Section):
    """``[metadata]``: where the names of channels live."""

    kind: Literal["embedded", "memory"] = Field("embedded", description="metadata store; memory forgets at exit")


class LimitSettings(Section):
    """``[limits]``: bounds; those in bytes as a number or with a unit such as ``8MiB``."""

    max_message_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.max_message_bytes), gt=0, description="one message's payload"
    )
    max_batch_bytes: ByteSize = Field(ByteSize(_DEFAULT_LIMITS.max_batch_bytes), gt=0, description="one batch")
    max_in_flight_bytes_per_stream: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.max_in_flight_bytes_per_stream),
        gt=0,
        description="unacknowledged on a stream",
    )
    max_in_flight_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.max_in_flight_bytes), gt=0, description="unacknowledged on the server"
    )
    tail_ring_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.tail_ring_bytes), gt=0, description="memory that serves live scans"
    )
    min_free_disk_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.min_free_disk_bytes),
        ge=0,
        description="appends stop below so much free disk",
    )

    max_txn_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.max_txn_bytes), gt=0, description="one transaction, staged on disk"
    )
    max_staged_bytes: ByteSize = Field(
        ByteSize(_DEFAULT_LIMITS.max_staged_bytes), gt=0, description="all open transactions, staged on disk"
    )
    max_open_txns: int = Field(_DEFAULT_LIMITS.max_open_txns, gt=0, description="open transactions on the server")
    max_open_txns_per_client: int = Field(
        _DEFAULT_LIMITS.max_open_txns_per_client, gt=0, description="open transactions of one client"
    )
    txn_keepalive_ms: int = Field(
        _DEFAULT_LIMITS.txn_keepalive_ms,
        gt=0,
        le=MAX_KEEPALIVE_US // 1_000,
        description="life of a silent transaction that names none",
    )

    def to_limits(self) -> Limits:
        """Return the limits as the layers below know them. Call when ``broken_relations`` yields none."""
        return Limits(**{name: int(value) for name, value in self})


class LogSettings(Section):
    """``[log]``: what the server says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe event shown")
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: text on a terminal, else JSON")
    slow_append_ms: int = Field(1_000, ge=0, description="appends that take longer are logged; 0 for none")


SECTIONS: dict[str, type[Section]] = {
    "server": ServerSettings,
    "storage": StorageSettings,
    "metadata": MetadataSettings,
    "limits": LimitSettings,
    "log": LogSettings,
}


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """One setting, for listings.

    Attributes:
        key: ``section.name``.
        default: As it would be written in a file.
        text: What it does, in a few words.
    """

    key: str
    default: str
    text: str


def describe_settings() -> list[SettingDescription]:
    """Return all settings, section by section."""
    return [
        SettingDescription(f"{section}.{name}", format_setting(field.default), field.description or "")
        for section, model in SECTIONS.items()
        for name, field in model.model_fields.items()
    ]


def format_setting(value: object) -> str:
    """Return a setting's value as text: truth in lower case, whole MiB with their unit."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ByteSize) and value > 0 and value % (1 << 20) == 0:
        return f"{value >> 20}MiB"
    return str(value)


def broken_relations(sections: dict[str, Section]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is expected) for each broken rule between settings."""
    server, limits = sections["server"], sections["limits"]
    assert isinstance(server, ServerSettings)
    assert isinstance(limits, LimitSettings)
    yield from _exposed_addresses(server)
    for smaller, larger in (
        ("max_message_bytes", "max_batch_bytes"),
        ("max_batch_bytes", "max_in_flight_bytes_per_stream"),
        ("max_in_flight_bytes_per_stream", "max_in_flight_bytes"),
        ("max_batch_bytes", "max_txn_bytes"),
        ("max_txn_bytes", "max_staged_bytes"),
    ):
        bound = getattr(limits, larger)
        if getattr(limits, smaller) > bound:
            yield f"limits.{smaller}", f"at most limits.{larger}, which is {bound} bytes"
    if limits.max_batch_bytes > MAX_BATCH_BYTES_CEILING:
        yield "limits.max_batch_bytes", f"at most {MAX_BATCH_BYTES_CEILING} bytes"


def _exposed_addresses(server: ServerSettings) -> Iterator[tuple[str, str]]:
    """Yield the addresses that other machines could reach without the operator having said so."""
    for name in ("host", "http_host"):
        if not server.insecure and not _is_loopback(getattr(server, name)):
            yield (
                f"server.{name}",
                "a loopback address such as 127.0.0.1, because nothing is encrypted or authenticated; "
                "set server.insecure = true if the network is trusted",
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
