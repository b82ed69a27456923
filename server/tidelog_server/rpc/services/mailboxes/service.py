"""MailboxService: create, configure, describe, list and delete mailboxes."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_LIST_PAGE
from tidelog_server.core.mailboxes import MailboxSettings
from tidelog_server.core.names import check_mailbox_name
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.registry import Mailboxes
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.mailboxes.calls import MailboxCalls
from tidelog_server.rpc.services.mailboxes.stream import OperateCalls
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import OF_MAILBOXES


class MailboxService:
    """Handlers of MailboxService. Those of calls on messages are in ``calls`` and ``stream``."""

    def __init__(self, mailboxes: Mailboxes, calls: MailboxCalls, operations: OperateCalls) -> None:
        self._mailboxes = mailboxes
        self._calls = calls
        self._operations = operations

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the handler of each method of the service."""
        return {
            **self._calls.methods(),
            **self._operations.methods(),
            "CreateMailbox": self.create_mailbox,
            "ConfigureMailbox": self.configure_mailbox,
            "DescribeMailbox": self.describe_mailbox,
            "ListMailboxes": self.list_mailboxes,
            "DeleteMailbox": self.delete_mailbox,
        }

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

    async def list_mailboxes(self, request: pb.ListMailboxesRequest, _: Context) -> pb.ListMailboxesResponse:
        """List a page of mailboxes."""
        if request.page_size > MAX_LIST_PAGE:
            raise InvalidRequestError(
                f"page_size is {request.page_size}, expected 1 to {MAX_LIST_PAGE}, or 0", field="page_size"
            )
        size = request.page_size or MAX_LIST_PAGE
        visible = filter(_is_visible, self._mailboxes.list(request.prefix, request.page_token))
        # One more, to find out whether there is another page.
        found = list(islice(visible, size + 1))
        return pb.ListMailboxesResponse(
            mailboxes=map(mailbox, found[:size]), next_page_token=found[size - 1].name if size < len(found) else ""
        )

    async def delete_mailbox(self, request: pb.DeleteMailboxRequest, _: Context) -> pb.DeleteMailboxResponse:
        """Delete a mailbox."""
        existed = await self._mailboxes.delete(check_mailbox_name(request.name), ignore_missing=request.ignore_missing)
        return pb.DeleteMailboxResponse(existed=existed)


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
    return pb.MailboxSettings(
        lease_ms=settings.lease_ms,
        max_lease_ms=settings.max_lease_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        backoff=pb.Backoff(delays_ms=settings.backoff_ms),
        delay_ms=settings.delay_ms,
        ttl_ms=settings.ttl_ms,
        dedup_window_ms=settings.dedup_window_ms,
        max_in_flight=settings.max_in_flight,
        max_messages=settings.max_messages,
        max_body_bytes=settings.max_body_bytes,
    )


def _is_visible(record: MailboxRecord) -> bool:
    """Return whether the caller has a permission on a mailbox."""
    access = current_access()
    return access is None or access.may(OF_MAILBOXES, record.name)
