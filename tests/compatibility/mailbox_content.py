"""The content of mailboxes, journals and blobs as JSON: the counterpart of ``content``, of which the same holds."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from compatibility.content import Json, messages, plain, text_of
from tidelog import Client, TidelogError
from tidelog.mailboxes.deliveries import delivery_of_lock

_ALL: Final = 100


def dump_mailboxes(client: Client, facts: Mapping[str, Any]) -> Json:
    """Return all mailboxes with their messages, all journals with their frames, and the blobs of ``facts``."""
    journals = client.journals.list().journals
    content: Json = plain(
        {
            "mailboxes": {each.name: _mailbox(client, each.name) for each in client.mailboxes.list()},
            "journals": {each.name: [asdict(each), messages(client, f"{each.channel}/0")] for each in journals},
            "blobs": {key: _blob(client, bytes.fromhex(key)) for key in facts.get("blobs", ())},
        }
    )
    return content


def probe_mailboxes(client: Client, facts: Mapping[str, Any]) -> Json:
    """Repeat sends and acknowledgements that the server must recognize, then confirm all that it delivers."""
    answers: Json = plain(
        {
            "duplicates": [
                [name, key, *client.mailbox(name).send(b"never", dedup_key=key)] for name, key in facts["dedup_keys"]
            ],
            "locks": [[name, lock, _acknowledged(client, name, lock)] for name, lock in facts["locks"]],
            "delivered": {each.name: _drained(client, each.name) for each in client.mailboxes.list()},
        }
    )
    return answers


def _mailbox(client: Client, name: str) -> Json:
    peeked = client.mailbox(name).peek(max_messages=_ALL)
    assert len(peeked) < _ALL
    rows = [asdict(each) | {"body": text_of(each.body)} for each in peeked]
    return {"description": asdict(client.mailboxes.describe(name)), "messages": rows}


def _blob(client: Client, key: bytes) -> Json:
    return asdict(client.blobs.describe(key)) | {"content": text_of(client.blobs.get(key))}


def _acknowledged(client: Client, name: str, lock: str) -> str:
    """Confirm the delivery under a lock: return the error, or ``confirmed``."""
    try:
        client.mailbox(name).ack_many([delivery_of_lock(name, bytes.fromhex(lock))])
    except TidelogError as error:
        return type(error).__name__
    return "confirmed"


def _drained(client: Client, name: str) -> list[list[Any]]:
    """Fetch and confirm one message after another; return them in the order of their ids."""
    mailbox, found = client.mailbox(name), list[list[Any]]()
    while deliveries := mailbox.fetch(1):
        (each,) = deliveries
        dead_letter = None if each.dead_letter is None else list(each.dead_letter)
        row = [each.id, text_of(each.body), dict(each.headers), each.delivery_count, each.status.name, each.priority]
        found.append([*row, each.group, dead_letter])
        each.ack()
    # The order of delivery is a matter of the version, not of the files.
    return sorted(found)
