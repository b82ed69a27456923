"""Errors of mailboxes."""

import shlex

from tidelog_server.core.errors import InvalidRequestError, TidelogServerError


class MailboxNotExistError(TidelogServerError, reason="MAILBOX_NOT_EXIST"):
    """The mailbox does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"mailbox '{name}' does not exist: create it with `tidelog mailbox create {_in_shell(name)}`, or correct "
            "the name",
            name=name,
        )


class MailboxAlreadyExistsError(TidelogServerError, reason="MAILBOX_ALREADY_EXISTS"):
    """A mailbox with this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"mailbox '{name}' exists already: use it as it is, change it with `tidelog mailbox configure`, or choose "
            "another name",
            name=name,
        )


class MailboxInUseError(TidelogServerError, reason="MAILBOX_IN_USE"):
    """Another mailbox sends its dead letters to this one."""

    def __init__(self, name: str, mailbox: str) -> None:
        super().__init__(
            f"mailbox '{name}' receives the dead letters of mailbox '{mailbox}': first change its dead_letter with "
            "`tidelog mailbox configure --dead-letter`",
            name=name, mailbox=mailbox,
        )  # fmt: skip


class DeadLetterCycleError(TidelogServerError, reason="DEAD_LETTER_CYCLE"):
    """The dead letters of mailboxes would form a cycle."""

    def __init__(self, name: str, dead_letter: str) -> None:
        super().__init__(
            f"dead letters of mailbox '{name}' cannot go to '{dead_letter}', because its own dead letters reach "
            f"'{name}': choose a mailbox without dead_letter",
            name=name, dead_letter=dead_letter,
        )  # fmt: skip


class LockUnknownError(TidelogServerError, reason="LOCK_UNKNOWN"):
    """A lock is not one of the mailbox."""

    def __init__(self, name: str, lock_id: bytes) -> None:
        super().__init__(
            f"mailbox '{name}' does not know lock {lock_id.hex() or '(empty)'}: it is invalid, of another mailbox, or "
            "ended too long ago; use the lock_id of a delivery of this mailbox",
            name=name, lock_id=lock_id.hex(),
        )  # fmt: skip


class LockExpiredError(TidelogServerError, reason="LOCK_EXPIRED"):
    """The lease of a lock has ended without an acknowledgement."""

    def __init__(self, name: str, lock_id: bytes, message_id: int) -> None:
        super().__init__(
            f"the lease of lock {lock_id.hex()} on message {message_id} of mailbox '{name}' has ended, and the message "
            "may have been delivered again: extend leases while a message is processed, or fetch with longer ones",
            name=name, lock_id=lock_id.hex(), id=message_id,
        )  # fmt: skip


class AlreadyAcknowledgedError(TidelogServerError, reason="ALREADY_ACKNOWLEDGED"):
    """The delivery of a lock was confirmed or rejected before."""

    def __init__(self, name: str, lock_id: bytes, message_id: int) -> None:
        super().__init__(
            f"the delivery of message {message_id} of mailbox '{name}' under lock {lock_id.hex()} was acknowledged "
            "before: acknowledge each delivery once",
            name=name, lock_id=lock_id.hex(), id=message_id,
        )  # fmt: skip


class MailboxFullError(TidelogServerError, reason="MAILBOX_FULL"):
    """The mailbox holds as many messages as its settings allow."""

    def __init__(self, name: str, *, messages: int, max_messages: int) -> None:
        super().__init__(
            f"mailbox '{name}' holds {messages} messages, and accepts at most {max_messages}: wait until workers have "
            "confirmed some, or raise max_messages with `tidelog mailbox configure --max-messages`",
            name=name, messages=messages, max_messages=max_messages,
        )  # fmt: skip


class LeaseTooLongError(InvalidRequestError, reason="LEASE_TOO_LONG"):
    """A lease is longer than the mailbox allows."""

    def __init__(self, name: str, *, lease_ms: int, max_lease_ms: int) -> None:
        super().__init__(
            f"the lease is {lease_ms} ms, mailbox '{name}' allows 1 to {max_lease_ms}: ask for less and extend the "
            "lease, or raise max_lease_ms with `tidelog mailbox configure --max-lease`",
            name=name, lease_ms=lease_ms, max_lease_ms=max_lease_ms,
        )  # fmt: skip


class BodyTooLargeError(InvalidRequestError, reason="BODY_TOO_LARGE"):
    """A body is larger than the mailbox allows."""

    def __init__(self, name: str, *, size_bytes: int, max_bytes: int, index: int) -> None:
        super().__init__(
            f"the body of message {index} has {size_bytes} bytes, mailbox '{name}' accepts at most {max_bytes}: send a "
            "smaller one, or raise max_body_bytes with `tidelog mailbox configure --max-body`",
            name=name, bytes=size_bytes, max_bytes=max_bytes, index=index,
        )  # fmt: skip


class InvalidDelayError(InvalidRequestError, reason="INVALID_DELAY"):
    """A delay or a time is negative, or too far away."""

    def __init__(self, field: str, *, ms: int, max_ms: int) -> None:
        super().__init__(f"{field} is {ms} ms, expected 0 to {max_ms}", field=field, ms=ms)


class BlobNotExistError(TidelogServerError, reason="BLOB_NOT_EXIST"):
    """No blob is stored under a key."""

    def __init__(self, key: bytes) -> None:
        super().__init__(
            f"blob {key.hex() or '(empty)'} is not stored on this node: store it again; blobs that nothing refers to "
            "are deleted after a grace period",
            key=key.hex(),
        )  # fmt: skip


class BlobTooLargeError(InvalidRequestError, reason="BLOB_TOO_LARGE"):
    """A blob is larger than the server accepts."""

    def __init__(self, *, size_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"the blob has at least {size_bytes} bytes, at most {max_bytes} are accepted: divide it",
            bytes=size_bytes, max_bytes=max_bytes,
        )  # fmt: skip


def _in_shell(name: str) -> str:
    """Return a name as an argument of a command in a text. A name of a mailbox may have blanks, or begin with ``-``."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)
