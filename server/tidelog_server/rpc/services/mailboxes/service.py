"""MailboxService: create, configure, describe, list and delete mailboxes."""

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any, Final

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.mailboxes import MailboxSettings
from tidelog_server.core.names import check_mailbox_name
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.registry import Registry
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found, page_of
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.stream import OperateStream
from tidelog_server.security.access import current_tenant
from tidelog_server.security.grants import OF_MAILBOXES

# Converting the settings of a mailbox takes as long as this number of looks.
_LOOKS_PER_MAILBOX: Final = 4


class MailboxService:
    """Handlers of MailboxService. Those of other calls on messages are in ``calls``."""

    def __init__(self, mailboxes: Registry, calls: MessageCalls, node: LogNode) -> None:
        self._mailboxes = mailboxes
        self._node = node
        self._calls = calls

    async def create_mailbox(self, request: pb.CreateMailboxRequest, _: Context) -> pb.CreateMailboxResponse:
        """Create a mailbox."""
        record, is_created = await self._mailboxes.create(
            check_mailbox_name(request.name), changes_of(request.settings), current_tenant(),
            if_not_exists=request.if_not_exists,
        )  # fmt: skip
        return pb.CreateMailboxResponse(mailbox=mailbox(record), is_created=is_created)

    async def configure_mailbox(self, request: pb.ConfigureMailboxRequest, _: Context) -> pb.ConfigureMailboxResponse:
        """Change settings of a mailbox."""
        changes = changes_of(request.settings)
        if not changes:
            raise InvalidRequestError("the request changes nothing: set at least one setting", field="settings")
        record = await self._mailboxes.configure(check_mailbox_name(request.name), changes)
        return pb.ConfigureMailboxResponse(mailbox=mailbox(record))

    async def describe_mailbox(self, request: pb.DescribeMailboxRequest, _: Context) -> pb.DescribeMailboxResponse:
        """Describe a mailbox."""
        record, _place = self._mailboxes.find(check_mailbox_name(request.name))
        counts = await self._calls.counts(record.name)
        return pb.DescribeMailboxResponse(mailbox=mailbox(record), counts=counts)

    async def list_mailboxes(self, request: pb.ListMailboxesRequest, context: Context) -> pb.ListMailboxesResponse:
        """List a page of mailboxes."""
        catalog = self._mailboxes.catalog

        def find(name: str) -> Found[pb.Mailbox]:
            record = catalog.records.get(name)
            return (None, 0) if record is None else (mailbox(record), _LOOKS_PER_MAILBOX)

        looks = Looks.of(self._node, context)
        page = await page_of(request, catalog.names, OF_MAILBOXES, find, looks, prefix=request.prefix)
        return pb.ListMailboxesResponse(mailboxes=page.items, next_page_token=page.next_token)

    async def delete_mailbox(self, request: pb.DeleteMailboxRequest, _: Context) -> pb.DeleteMailboxResponse:
        """Delete a mailbox."""
        existed = await self._mailboxes.delete(check_mailbox_name(request.name), ignore_missing=request.ignore_missing)
        return pb.DeleteMailboxResponse(existed=existed)

    async def operate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Execute operations until the client closes its side of the stream."""
        await OperateStream(self._calls, self._node, context).run(requests)


def changes_of(wire: Any) -> dict[str, Any]:
    """Return the settings that are set, as fields of MailboxSettings.

    Raises:
        InvalidNameError: ``dead_letter`` is not the name of a mailbox.
    """
    changes: dict[str, Any] = {field.name: value for field, value in wire.ListFields() if field.name != "backoff"}
    if wire.HasField("backoff"):
        changes["backoff_ms"] = tuple(wire.backoff.delays_ms)
    if dead_letter := changes.get("dead_letter"):
        check_mailbox_name(dead_letter)
    return changes


def mailbox(record: MailboxRecord) -> pb.Mailbox:
    """Return a mailbox as a protobuf message."""
    return pb.Mailbox(
        name=record.name,
        channel=record.channel,
        settings=_wire_settings(record.settings),
        revision=record.revision,
        created_ms=record.created_ms,
    )


def _wire_settings(settings: MailboxSettings) -> pb.MailboxSettings:
    same = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name != "backoff_ms"}
    return pb.MailboxSettings(**same, backoff=pb.Backoff(delays_ms=settings.backoff_ms))
