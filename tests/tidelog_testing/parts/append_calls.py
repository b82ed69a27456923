"""The handlers of appends on a node without gRPC."""

from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_server.rpc.services.append import AppendCalls
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.transactions import MailboxTransactions
from tidelog_server.rpc.services.options import Syncs
from tidelog_testing.parts.nodes import Node


def calls_of(node: Node) -> AppendCalls:
    """Return the calls of a node without mailboxes."""
    mailboxes = MailboxTransactions(MessageCalls(node.open_mailboxes(FoldEvents()), node.mailboxes.name_of))
    return AppendCalls(
        node.directory, node.transactions, node.groups, node.log, mailboxes=mailboxes, syncs=Syncs(by_default=True)
    )
