"""Named places where a test can kill or stop the process. They cost nothing when disarmed.

``TIDELOG_FAILPOINT=before_write:3`` kills the process with SIGKILL at the third hit of ``before_write``. No clean-up
runs, as in a real crash. ``before_write:3:stop`` stops it with SIGSTOP, and it continues with SIGCONT, as a virtual
machine that is suspended.
"""

import os
import signal
from enum import StrEnum
from typing import Final

VARIABLE: Final = "TIDELOG_FAILPOINT"


class Failpoint(StrEnum):
    """Failpoints: those of the write path, in the order in which an append hits them, then those of other calls.

    A scan hits its own before it sends a watermark that it has read.

    Those of steps, snapshots and copies of mailboxes are hit by those of the blobs, too.
    """

    BEFORE_WRITE = "before_write"
    AFTER_WRITE_BEFORE_SYNC = "after_write_before_sync"
    AFTER_SYNC_BEFORE_ACK = "after_sync_before_ack"
    BEFORE_HEAD_UPDATE = "before_head_update"
    SCAN_WATERMARK_READ = "scan_watermark_read"
    MID_TRIM = "mid_trim"
    MID_DROP = "mid_drop"
    MID_DISCARD = "mid_discard"
    TXN_BEGUN = "txn_begun"
    TXN_STAGED = "txn_staged"
    TXN_COMMITTING = "txn_committing"
    TXN_COMMITTED = "txn_committed"
    CHANNEL_GROWTH_COMMITTED = "channel_growth_committed"
    CHANNEL_GROWTH_OPENED = "channel_growth_opened"
    CHANNEL_GROWTH_SUBSCRIBED = "channel_growth_subscribed"
    GROUP_MID_CREATE = "group_mid_create"
    GROUP_MID_DESTROY = "group_mid_destroy"
    JOURNAL_MID_APPLY = "journal_mid_apply"
    JOURNAL_MID_DELETE = "journal_mid_delete"
    MAILBOX_MID_CREATE = "mailbox_mid_create"
    MAILBOX_MID_DELETE = "mailbox_mid_delete"
    FOLD_STEP_SUBMITTED = "fold_step_submitted"
    FOLD_SNAPSHOT_PAGE = "fold_snapshot_page"
    FOLD_COPIED = "fold_copied"
    MAILBOX_JOINT_SUBMITTED = "mailbox_joint_submitted"
    MAILBOX_MOVED = "mailbox_moved"
    BLOB_MID_PUT = "blob_mid_put"
    BROADCAST_KEYS_HELD = "broadcast_keys_held"
    BROADCAST_ACCEPTED = "broadcast_accepted"
    BROADCAST_APPENDED = "broadcast_appended"
    BROADCAST_MID_WAIT_ACK = "broadcast_mid_wait_ack"
    BROADCAST_MID_ACK = "broadcast_mid_ack"
    ENGINE_SNAPSHOT_PART = "engine_snapshot_part"
    ENGINE_SNAPSHOT_NAMED = "engine_snapshot_named"
    MID_CHECKPOINT = "mid_checkpoint"
    BACKUP_MID_COPY = "backup_mid_copy"
    BACKUP_BEFORE_MANIFEST = "backup_before_manifest"
    BACKUP_BEFORE_RENAME = "backup_before_rename"
    RESTORE_MID_COPY = "restore_mid_copy"
    RESTORE_BEFORE_RENAME = "restore_before_rename"
    IMPORT_STEP = "import_step"


class _Armed:
    """The armed failpoint, if any, the number of hits left, and the signal of the last one."""

    __slots__ = ("hits_left", "name", "signal")

    def __init__(self, setting: str) -> None:
        self.arm(setting)

    def arm(self, setting: str) -> None:
        """Arm the failpoint ``setting`` instead of that of the environment: for forked processes."""
        name, _, rest = setting.partition(":")
        hits, _, action = rest.partition(":")
        assert action in ("", "stop"), setting
        self.name: Failpoint | None = Failpoint(name) if name else None
        self.hits_left = int(hits) if hits else 1
        self.signal = signal.SIGSTOP if action else signal.SIGKILL


ARMED: Final = _Armed(os.environ.get(VARIABLE, ""))


def hit(name: Failpoint) -> None:
    """Kill or stop the process if this failpoint is armed and this is its last hit."""
    if ARMED.name is not name:
        return
    ARMED.hits_left -= 1
    if ARMED.hits_left == 0:
        os.kill(os.getpid(), ARMED.signal)
