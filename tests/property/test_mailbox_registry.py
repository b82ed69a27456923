"""The registry of mailboxes agrees with a plain model, whatever the order of creations, changes and deletes.

Method: hypothesis draws operations on a few names; a node on stores in memory and a dictionary both apply them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_server.core.callers import NO_TENANT
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.mailboxes.catalog import MailboxRecord, check_mailboxes
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import Node, running_node

NAMES = st.sampled_from(["a", "b", "c", "d"])
DEAD_LETTERS = st.one_of(st.just(""), NAMES, st.just("missing"))


@dataclass(frozen=True)
class Step:
    """One operation: what it does, on which mailbox, and the mailbox for dead letters that it sets."""

    kind: str
    name: str
    dead_letter: str


STEPS = st.lists(
    st.builds(Step, st.sampled_from(["create", "configure", "delete"]), NAMES, DEAD_LETTERS), min_size=1, max_size=25
)


def expected(model: dict[str, str], step: Step) -> str:
    """Apply a step to the model, mailboxes for dead letters by mailbox; return the reason of a refusal, or ``""``."""
    if (step.kind == "create") is (step.name in model):
        return "MAILBOX_ALREADY_EXISTS" if step.kind == "create" else "MAILBOX_NOT_EXIST"
    if step.kind == "delete":
        if step.name in model.values():
            return "MAILBOX_IN_USE"
        del model[step.name]
        return ""
    if step.dead_letter not in ("", step.name, *model):
        return "MAILBOX_NOT_EXIST"
    reached = step.dead_letter
    while reached and reached != step.name:
        reached = model.get(reached, "")
    if reached:
        return "DEAD_LETTER_CYCLE"
    model[step.name] = step.dead_letter
    return ""


async def applied(node: Node, step: Step) -> str:
    changes = {"dead_letter": step.dead_letter}
    try:
        if step.kind == "create":
            await node.mailboxes.create(step.name, changes, NO_TENANT)
        elif step.kind == "configure":
            await node.mailboxes.configure(step.name, changes)
        else:
            await node.mailboxes.delete(step.name)
    except TidelogServerError as error:
        return error.reason
    return ""


async def compared(steps: Sequence[Step]) -> None:
    model: dict[str, str] = {}
    async with running_node(MemoryLogStore()) as node:
        deleted, configured = list[MailboxRecord](), list[MailboxRecord]()
        node.mailboxes.on_deleted, node.mailboxes.on_configured = deleted.append, configured.append
        for step in steps:
            before = dict(model)
            reason = expected(model, step)
            assert await applied(node, step) == reason, step
            records = node.mailboxes.catalog.records
            assert {name: record.settings.dead_letter for name, record in records.items()} == model
            assert set(node.directory.logs) == {record.channel for record in records.values()}
            check_mailboxes(records, node.directory.logs)
            assert [record.name for record in deleted] == sorted(set(before) - set(model))
            is_changed = step.kind == "configure" and before != model
            assert [record.name for record in configured] == [step.name] * is_changed
            deleted.clear()
            configured.clear()


@settings(deadline=None)
@given(STEPS)
def test_the_registry_agrees_with_the_model(steps: list[Step]) -> None:
    asyncio.run(compared(steps))
