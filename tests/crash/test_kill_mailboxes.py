"""Mailboxes across SIGKILL: a request that a kill interrupts has happened as a whole.

Method: a server kills itself between the steps of a creation or a delete; the next one shows the mailboxes and their
channels.

Promises of docs/reference/guarantees.md: G3.
"""

from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, MailboxSettings, Retry
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

IMPATIENT = Retry(give_up_s=0.1)


async def state(client: AsyncClient) -> dict[str, int | None]:
    """Return the mailboxes with their leases, after a check that channels and mailboxes belong together."""
    mailboxes = await client.mailboxes.list()
    channels = [each.name async for each in client.list_channels("_mailbox.")]
    assert sorted(channels) == sorted(mailbox.channel for mailbox in mailboxes)
    for mailbox in mailboxes:
        assert (await client.mailboxes.describe(mailbox.name)).settings == mailbox.settings
    return {mailbox.name: mailbox.settings.lease_ms for mailbox in mailboxes}


@pytest.mark.parametrize("point", [Failpoint.MAILBOX_MID_CREATE, Failpoint.MAILBOX_MID_DELETE, Failpoint.MID_DROP])
async def test_a_server_that_dies_between_the_steps_has_finished_the_request(tmp_path: Path, point: Failpoint) -> None:
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.mailboxes.create("kept", MailboxSettings(lease_ms=5))
            await client.mailboxes.create("gone")
    creates = point is Failpoint.MAILBOX_MID_CREATE
    with ServerProcess(tmp_path / "log", env={VARIABLE: str(point)}) as server:
        async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
            change = client.mailboxes.create("new") if creates else client.mailboxes.delete("gone")
            with pytest.raises(tidelog.TidelogError) as unknown:
                await change
            assert unknown.value.effect == "unknown"
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            expected = {"kept": 5, "new": 30_000, "gone": 30_000} if creates else {"kept": 5}
            assert await state(client) == expected
            await client.mailboxes.create("later")
            await client.mailboxes.delete("kept")
            del expected["kept"]
            assert await state(client) == {**expected, "later": 30_000}
