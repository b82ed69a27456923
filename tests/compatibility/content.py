"""The content of a server as JSON, read through the public client.

The script that wrote the golden files used it with the client of its commit, and the tests use it with the current
one. So it uses only what both have.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

import tidelog
from tidelog import BroadcastState, Client, PreparedTransaction, ProducerSequence

Json = dict[str, Any]
# A longer payload is represented by its hash.
_SHOWN_BYTES: Final = 400
# These depend on the time of the call.
_OF_THE_CALL: Final = frozenset({"age_s", "lag_s", "expires_in_s", "watermark", "oldest_age_ms"})
AUDIT: Final = "_audit"
# The server's own channels, of which others are logs that its housekeeping changes.
_RESERVED: Final = "_"


def dump(client: Client, txn_ids: Iterable[int] = ()) -> Json:
    """Return everything that a client can read without a change: channels, messages, groups, broadcasts, transactions.

    Args:
        client: Of an administrator, if the server has authentication on; then tokens are included.
        txn_ids: Staged transactions that were committed.
    """
    channels = [channel for channel in client.list_channels() if not channel.name.startswith(_RESERVED)]
    lanes = [lane.name for channel in channels for lane in channel.vchannels]
    content: Json = plain(
        {
            "channels": {channel.name: asdict(channel) for channel in channels},
            "messages": {lane: messages(client, lane) for lane in lanes},
            "groups": {group.name: asdict(client.describe_group(group.name)) for group in client.list_groups()},
            "broadcasts": [asdict(each) for each in client.list_broadcasts(list(BroadcastState))],
            "open_broadcasts": [
                asdict(client.describe_broadcast(each.broadcast_id)) for each in client.list_broadcasts()
            ],
            "open_transactions": [asdict(each) for each in client.list_txns()],
            "committed_transactions": [asdict(client.describe_txn(txn_id)) for txn_id in txn_ids],
        }
    )
    return content


def dump_tokens(client: Client) -> list[Json]:
    """Return all tokens, also revoked ones. Requires authentication."""
    return [plain(asdict(token)) for token in client.list_tokens(everything=True)]


def dump_audit(client: Client) -> list[list[Any]]:
    """Return the messages of the audit channel, to which a server with authentication appends by itself."""
    return messages(client, f"{AUDIT}/0")


def messages(client: Client, lane: str) -> list[list[Any]]:
    """Return all messages of a vchannel, a row each: all fields, in the order of their ticks."""
    with client.scan(lane) as scan:
        return [row_of(message) for batch in scan for message in batch]


def row_of(message: tidelog.StoredMessage) -> list[Any]:
    """Return all fields of a message."""
    key = None if message.key is None else text_of(message.key)
    return [
        message.tick, text_of(message.payload), key, message.type, dict(message.properties) or None,
        message.event_time_ms, message.txn_id, message.broadcast_id,
    ]  # fmt: skip


def text_of(content: bytes) -> str:
    """Return bytes as a text: each byte a character; of long ones, their number and hash."""
    if len(content) <= _SHOWN_BYTES:
        return content.decode("latin-1")
    return f"{len(content)} bytes {hashlib.blake2b(content, digest_size=16).hexdigest()}"


def probe(client: Client, facts: Mapping[str, Any]) -> Json:
    """Repeat the calls of ``facts`` that the server must recognize, and return its answers. Appends nothing.

    Every producer sends each of its remembered batches again, and one that is forgotten; every application commits its
    last version again; each identified Consume is repeated; a fenced append is tried. Last, producers are opened.
    """
    answers: Json = plain(
        {
            "batches": {name: _batches(client, name, last) for name, last in facts["last_sequences"].items()},
            "applications": {
                app_id: asdict(client.commit_prepared(prepare_parts(client, app_id, version), app_id, version))
                for app_id, version in facts["applications"].items()
            },
            "consumed": [
                [row_of(message) for message in client.consume(*call, commit=True, consume_id=consume_id).messages]
                for *call, consume_id in facts["consume_calls"]
            ],
            "fenced": {lane: _fenced_by(client, lane, token) for lane, token in facts["fencing_tokens"].items()},
            "positions": {name: _opened(client, name) for name in facts["last_sequences"]},
        }
    )
    return answers


def numbered_batch(producer_id: str, number: int) -> list[bytes]:
    """Return the payloads of a producer's batch."""
    return [f"{producer_id} {number}.{part}".encode() for part in range(1 + number % 2)]


def prepare_parts(client: Client, app_id: str, version: int) -> list[PreparedTransaction]:
    """Prepare what an application commits as a version, as each of its tries does."""
    prepared = []
    for number in range(2):
        txn = client.txn()
        for lane in ("events/2", "again/0"):
            txn.append(lane, f"{app_id} {number}".encode())
        part = txn.prepare(app_id, app_version=version)
        assert part is not None
        prepared.append(part)
    return prepared


def _batches(client: Client, name: str, last: list[int]) -> Json:
    """Send the last 64 batches of a producer again, and the one before them."""
    lane, producer_id = name.split(" ")
    sequence, epoch = last
    answers: Json = {}
    for number in range(max(1, sequence - 64), sequence + 1):
        try:
            numbered = ProducerSequence(producer_id, number, epoch)
            appended = client.append(lane, numbered_batch(producer_id, number), producer=numbered)
            answers[str(number)] = _as_then(appended, parts=())
        except tidelog.SequenceForgottenError as error:
            answers[str(number)] = type(error).__name__
    return answers


def _fenced_by(client: Client, lane: str, token: int) -> str:
    try:
        client.append(lane, [b"never"], fencing_token=token)
    except tidelog.FencedError as error:
        return type(error).__name__
    return "appended"


def _opened(client: Client, name: str) -> Json:
    lane, producer_id = name.split(" ")
    return _as_then(client.open_producer(lane, producer_id), vchannels=1)


def _as_then(result: Any, **later: object) -> Json:
    """Return the fields of a result without those that are of a later version, which must have these values."""
    found = asdict(result)
    assert {name: found.pop(name) for name in later} == later
    return found


def check(found: Json, was: Json) -> None:
    """Raise AssertionError unless ``found`` is ``was``. Later versions may add fields to what they describe."""
    assert found.keys() >= was.keys()
    for name, content in was.items():
        if isinstance(content, dict):
            assert found[name].keys() == content.keys(), name
        assert _known(found[name], content) == content, name
    for name, group in was["groups"].items():
        assert found["groups"][name]["positions"].keys() == group["positions"].keys(), name


def _known(found: Any, was: Any) -> Any:
    """Return ``found`` without fields that ``was`` does not have."""
    if isinstance(found, dict) and isinstance(was, dict):
        return {name: _known(each, was[name]) for name, each in found.items() if name in was}
    if isinstance(found, list) and isinstance(was, list) and len(found) == len(was):
        return [_known(each, other) for each, other in zip(found, was, strict=True)]
    return found


def plain(value: Any) -> Any:
    """Return the value as JSON has it, without fields that depend on the time of the call."""
    return json.loads(json.dumps(_without(value), default=str))


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _without(each) for name, each in value.items() if name not in _OF_THE_CALL}
    if isinstance(value, list | tuple):
        return [_without(each) for each in value]
    return value
