"""The status codes of domain errors, whose classes name their reasons.

The effect in our error detail applies to ``UNAVAILABLE`` too. A status without our detail comes from the transport; its
effect is unknown.
"""

from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2

from tidelog.v1 import error_pb2
from tidelog.wire.protowire import LENGTH, key_of, varint
from tidelog_server.core import errors
from tidelog_server.core.errors import Effect, TidelogServerError
from tidelog_server.core.errors import access as access_errors
from tidelog_server.core.errors import applications as app_errors
from tidelog_server.core.errors import cluster as cluster_errors
from tidelog_server.core.errors import forgotten as forgotten_errors
from tidelog_server.core.errors import groups as group_errors
from tidelog_server.core.errors import journals as journal_errors
from tidelog_server.core.errors import mailboxes as mailbox_errors
from tidelog_server.core.errors import storage as storage_errors

_Code = grpc.StatusCode
_MAX_TEXT_CHARACTERS: Final = 512
DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_MS: Final = "retry_after_ms"
"""Key of the error value with the milliseconds to wait before a retry."""

_CLASSES: Final[dict[grpc.StatusCode, tuple[type[TidelogServerError], ...]]] = {
    _Code.INVALID_ARGUMENT: (
        errors.InvalidRequestError,
        errors.InvalidNameError,
        errors.EmptyBatchError,
        errors.MessageTooLargeError,
        errors.BatchTooLargeError,
        errors.MalformedColumnsError,
        errors.ChecksumMismatchError,
        errors.ReservedPropertyError,
        errors.MalformedRequestError,
        errors.VchannelNotInTransactionError,
        errors.BroadcastVchannelUnknownError,
        mailbox_errors.LeaseTooLongError,
        mailbox_errors.BodyTooLargeError,
        mailbox_errors.InvalidDelayError,
        mailbox_errors.BlobTooLargeError,
    ),
    _Code.FAILED_PRECONDITION: (
        errors.WalNameMismatchError,
        errors.FencingTokenMismatchError,
        errors.ProducerFencedError,
        errors.SequenceGapError,
        errors.SequenceReusedError,
        forgotten_errors.ProducerForgottenError,
        errors.TxnSequenceGapError,
        errors.TxnSequenceReusedError,
        errors.TransactionIncompleteError,
        errors.TransactionExpiredError,
        errors.InvalidTransactionStateError,
        errors.TransactionOutcomeForgottenError,
        app_errors.AppVersionPassedError,
        app_errors.AppCommitMismatchError,
        forgotten_errors.ApplicationForgottenError,
        errors.ResourceAcquiredError,
        errors.BroadcastReusedError,
        forgotten_errors.BroadcastForgottenError,
        group_errors.GroupInUseError,
        group_errors.GroupNotSubscribedError,
        group_errors.GroupMemberFencedError,
        forgotten_errors.ConsumeForgottenError,
        cluster_errors.NotOwnerError,
        cluster_errors.NotLeaderError,
        storage_errors.CheckpointUnsupportedError,
        mailbox_errors.LockExpiredError,
        mailbox_errors.AlreadyAcknowledgedError,
        mailbox_errors.DeadLetterCycleError,
        mailbox_errors.MailboxInUseError,
    ),
    _Code.NOT_FOUND: (
        errors.ChannelNotExistError,
        errors.TransactionNotExistError,
        errors.BroadcastNotExistError,
        group_errors.GroupNotExistError,
        access_errors.TokenNotExistError,
        storage_errors.CheckpointNotExistError,
        mailbox_errors.MailboxNotExistError,
        mailbox_errors.LockUnknownError,
        mailbox_errors.BlobNotExistError,
    ),
    _Code.ALREADY_EXISTS: (
        errors.ChannelAlreadyExistsError,
        errors.SequenceForgottenError,
        group_errors.GroupAlreadyExistsError,
        mailbox_errors.MailboxAlreadyExistsError,
    ),
    _Code.DEADLINE_EXCEEDED: (errors.BarrierNotReachedError,),
    _Code.ABORTED: (
        errors.LastTickMismatchError,
        errors.BroadcastAbortedError,
        group_errors.GroupPositionMovedError,
        journal_errors.JournalRevisionMismatchError,
    ),
    _Code.PERMISSION_DENIED: (
        errors.TransactionForeignError,
        access_errors.PermissionDeniedError,
    ),
    _Code.RESOURCE_EXHAUSTED: (
        errors.TransactionTooLargeError,
        errors.RateLimitRejectedError,
        errors.DiskFullError,
        mailbox_errors.MailboxFullError,
    ),
    _Code.UNAVAILABLE: (
        cluster_errors.MetadataUnavailableError,
        cluster_errors.OwnershipLostError,
        access_errors.AuditFailedError,
        errors.ShutdownError,
        storage_errors.StorageUnreadableError,
    ),
    _Code.OUT_OF_RANGE: (
        errors.PositionTrimmedError,
        errors.PositionBeyondEndError,
    ),
    _Code.UNAUTHENTICATED: (
        access_errors.UnauthenticatedError,
        access_errors.CredentialsExpiredError,
    ),
    _Code.INTERNAL: (
        storage_errors.CheckpointFailedError,
        errors.StorageFailedError,
        errors.InnerError,
    ),
    _Code.DATA_LOSS: (errors.DataLossError,),
}
CODE_BY_ERROR: Final = {error: code for code, errors_ in _CLASSES.items() for error in errors_}

_EFFECTS: Final = {Effect.NONE: error_pb2.EFFECT_NONE, Effect.UNKNOWN: error_pb2.EFFECT_UNKNOWN}


def detail_of(error: TidelogServerError) -> error_pb2.ErrorDetail:
    """Return the reason, effect and values of ``error`` as a message."""
    values = {name: _encodable(value) for name, value in error.values.items()}
    return error_pb2.ErrorDetail(reason=reason_of(error), effect=_EFFECTS[error.effect], values=values)


def reason_of(error: TidelogServerError) -> str:
    """Return the name of the reason of ``error`` in the protocol."""
    return f"REASON_{error.reason}"


def code_of(error: TidelogServerError) -> grpc.StatusCode:
    """Return the status code of ``error``."""
    return CODE_BY_ERROR[type(error)]


def code_number_of(error: TidelogServerError) -> int:
    """Return the status code of ``error`` as a number."""
    number: int = code_of(error).value[0]
    return number


def text_of(error: TidelogServerError) -> str:
    """Return the text of ``error``, truncated to _MAX_TEXT_CHARACTERS."""
    return _encodable(error.message[:_MAX_TEXT_CHARACTERS])


def _encodable(text: str) -> str:
    """Return a text with escapes in place of the lone surrogates that a request by HTTP may contain."""
    return text.encode(errors="backslashreplace").decode()


def call_error_of(error: TidelogServerError) -> error_pb2.CallError:
    """Return ``error`` as a message, for a response."""
    return error_pb2.CallError(code=code_number_of(error), message=text_of(error), detail=detail_of(error))


def trailing_metadata_of(error: TidelogServerError) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata with the detail of ``error``."""
    wrapped = any_pb2.Any()
    wrapped.Pack(detail_of(error))
    details = [wrapped]
    if (retry_after_ms := error.values.get(RETRY_AFTER_MS)) is not None:
        details.append(_retry_info(int(retry_after_ms)))
    status = error_pb2.RpcStatus(code=code_number_of(error), message=text_of(error), details=details)
    return ((DETAILS_KEY, status.SerializeToString()),)


def _retry_info(retry_after_ms: int) -> any_pb2.Any:
    """Return a google.rpc.RetryInfo. Encoded by hand: one field is not worth a package that clients must install."""
    delay = duration_pb2.Duration(seconds=retry_after_ms // 1_000, nanos=retry_after_ms % 1_000 * 1_000_000)
    encoded = delay.SerializeToString()
    value = key_of(1, LENGTH) + varint(len(encoded)) + encoded
    return any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=value)
