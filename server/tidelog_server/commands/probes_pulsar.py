"""Checks of a Pulsar broker for ``tidelog doctor --pulsar``."""

import json
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

from tidelog.errors import ChannelNotFoundError, PermissionDeniedError, TidelogError
from tidelog.msgstream import AsyncPulsarMsgStreamFactory, GeneralMsg, MsgPack, MsgType, PulsarBroker
from tidelog_server.commands.probes import Finding, Severity

_MIN_MESSAGE_BYTES = 1 << 20


async def check_pulsar(broker: PulsarBroker) -> list[Finding]:
    """Check that a broker can be reached, its limits, what this role may do, and what the namespace retains."""
    try:
        await broker.run(broker.client, "connecting")
    except TidelogError as error:
        return [Finding("Pulsar", Severity.FAILURE, str(error))]
    greeting = broker.greeting
    assert greeting is not None
    findings = [Finding("Pulsar", Severity.OK, f"{broker.service_url} runs {greeting.version}")]
    max_bytes = greeting.max_message_bytes
    size = Severity.OK if max_bytes >= _MIN_MESSAGE_BYTES else Severity.WARNING
    findings.append(
        Finding("Pulsar message size", size, f"messages may have {max_bytes} bytes; set max_message_bytes accordingly")
    )
    findings.append(await _check_permissions(broker))
    if broker.has_admin:
        findings += await broker.run(lambda: list(_policies(broker)), "reading policies")
    else:
        text = "not checked: pass --pulsar-admin"
        findings.append(Finding("Pulsar retention", Severity.OK, text))
    return findings


async def _check_permissions(broker: PulsarBroker) -> Finding:
    """Send and receive a message on a topic of its own."""
    name, about = f"tidelog-doctor-{token_hex(6)}", "Pulsar permissions"
    factory = AsyncPulsarMsgStreamFactory(broker)
    try:
        if broker.has_admin:
            topic = broker.topic(name)
            await broker.run(lambda: broker.admin("creating a topic").create_topic(topic), "creating a topic", topic)
        async with factory.new_msg_stream() as stream:
            await stream.as_producer([name])
            await stream.as_consumer([name], "doctor")
            await stream.produce(MsgPack(msgs=[GeneralMsg(type=MsgType.UNDEFINED)]))
            await stream.consume()
        await factory.dispose([name], "doctor", destroys_channels=broker.has_admin)
    except ChannelNotFoundError:
        text = "the broker does not create topics: pass --pulsar-admin, or create each topic before it is used"
        return Finding(about, Severity.WARNING, text)
    except PermissionDeniedError as error:
        return Finding(about, Severity.FAILURE, str(error))
    except TidelogError as error:
        return Finding(about, Severity.FAILURE, f"a message could not be sent and received: {error}")
    return Finding(about, Severity.OK, f"this role may send and receive in {broker.namespace}")


def _policies(broker: PulsarBroker) -> Iterator[Finding]:
    """Yield what the namespace retains."""
    about = "Pulsar retention"
    try:
        ttl_s, retention = _policy(broker, "messageTTL"), _policy(broker, "retention")
    except TidelogError as error:
        yield Finding(about, Severity.WARNING, f"the policies of {broker.namespace} cannot be read: {error}")
        return
    if ttl_s:
        text = f"{broker.namespace} deletes messages after {ttl_s} s, also those that a subscription has not handled"
        yield Finding(about, Severity.WARNING, f"{text}: remove its messageTTL")
        return
    kept = "only what subscriptions need" if not retention else f"{retention.get('retentionTimeInMinutes')} minutes"
    yield Finding(about, Severity.OK, f"{broker.namespace} retains {kept}, and what subscriptions have not handled")


def _policy(broker: PulsarBroker, name: str) -> Any:
    """Return a policy of the namespace; None if it is not set."""
    answer = broker.admin("reading policies").call("GET", f"/admin/v2/namespaces/{broker.namespace}/{name}")
    return json.loads(answer or b"null")
