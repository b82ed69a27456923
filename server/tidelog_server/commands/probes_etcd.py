"""Probes of an etcd. They report problems as findings and do not raise. Arguments are plain values."""

import asyncio
import statistics
import time
from typing import Final

from aetcd import rpc

from tidelog_server.commands.probes import Finding, Severity
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.metadata.etcd_connection import EtcdAccess, EtcdCallError, EtcdConnection

_GETS: Final = 16
_SLOW_MS: Final = 50.0
_OLDEST: Final = (3, 4)
# etcd's default quota is 2 GiB; beyond it, etcd refuses writes.
_LARGE_BYTES: Final = 3 << 29
_KEY: Final = b"tidelog/doctor"


async def check_etcd(access: EtcdAccess, *, timeout_s: float = 3.0) -> list[Finding]:
    """Check the availability, version, alarms, size and read latency of one etcd.

    Args:
        access: Exactly one endpoint, and the credentials for it.
        timeout_s: Seconds for all checks together.
    """
    [endpoint] = access.endpoints
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and len(port) <= 5):
        return [Finding("etcd", Severity.FAILURE, f"invalid endpoint '{endpoint}': expected host:port")]
    try:
        connection = EtcdConnection(access)
        try:
            async with asyncio.timeout(timeout_s):
                return await _ask(connection, endpoint)
        finally:
            await connection.close()
    except TimeoutError:
        text = f"{endpoint} did not respond within {timeout_s:g} s: start it, or correct metadata.etcd_endpoints"
    except OSError as error:
        text = f"cannot read a file for {endpoint} ({error}): correct metadata.etcd_ca, etcd_cert and etcd_key"
    except EtcdCallError as error:
        away = "did not respond" if error.may_pass else "refused the call"
        text = f"{endpoint} {away} ({error.code}: {error.text[:160]}): check etcd, user, password and certificates"
    except MetadataUnavailableError as error:
        text = error.message
    return [Finding("etcd", Severity.FAILURE, text)]


async def _ask(connection: EtcdConnection, endpoint: str) -> list[Finding]:
    status = await connection.call("Maintenance.Status", rpc.StatusRequest())
    findings = [_version(endpoint, status.version), _size(status.dbSize)]
    if status.errors:
        text = (
            f"{', '.join(status.errors)}; with NOSPACE etcd refuses writes: compact, defragment, then disarm the alarms"
        )
        findings.append(Finding("etcd alarms", Severity.FAILURE, text))
    took_ms = []
    for _ in range(_GETS):
        begin_s = time.perf_counter()
        await connection.call("KV.Range", rpc.RangeRequest(key=_KEY))
        took_ms.append((time.perf_counter() - begin_s) * 1e3)
    median_ms = statistics.median(took_ms)
    text = f"a read takes {median_ms:.1f} ms (median of {_GETS})"
    if median_ms > _SLOW_MS:
        text += ": leases may expire before they are renewed; check etcd's disk and the network"
    findings.append(Finding("etcd latency", Severity.WARNING if median_ms > _SLOW_MS else Severity.OK, text))
    return findings


def _version(endpoint: str, version: str) -> Finding:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        return Finding("etcd", Severity.FAILURE, f"{endpoint} is version {version}: use 3.4 or newer")
    return Finding("etcd", Severity.OK, f"{endpoint} responds, version {version}")


def _size(db_size_bytes: int) -> Finding:
    text = f"the database has {db_size_bytes / (1 << 20):.1f} MiB"
    if db_size_bytes > _LARGE_BYTES:
        return Finding(
            "etcd size", Severity.WARNING, f"{text}: etcd refuses writes at its quota (2 GiB by default); compact it"
        )
    return Finding("etcd size", Severity.OK, text)
