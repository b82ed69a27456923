"""The status codes of domain errors: each error has one code and one reason.

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
from tidelog_server.core.errors import checkpoints as checkpoint_errors
from tidelog_server.core.errors import cluster as cluster_errors
from tidelog_server.core.errors import forgotten as forgotten_errors
from tidelog_server.core.errors import storage as storage_errors

_Code = grpc.StatusCode
_MAX_TEXT_CHARACTERS: Final = 512
DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_MS: Final = "retry_after_ms"
"""Key of the error value with the milliseconds to wait before a retry."""

STATUS_BY_ERROR: Final[dict[type[TidelogServerError], tuple[grpc.StatusCode, error_pb2.Reason]]] = {
    errors.InvalidRequestError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_INVALID_ARGUMENT),
    errors.InvalidNameError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_INVALID_NAME),
    errors.EmptyBatchError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_EMPTY_BATCH),
    errors.MessageTooLargeError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_MESSAGE_TOO_LARGE),
    errors.BatchTooLargeError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_BATCH_TOO_LARGE),
    errors.MalformedColumnsError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_MALFORMED_COLUMNS),
    errors.ChecksumMismatchError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_CHECKSUM_MISMATCH),
    errors.ReservedPropertyError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_RESERVED_PROPERTY),
    errors.MalformedRequestError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_MALFORMED_REQUEST),
    errors.WalNameMismatchError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_WAL_NAME_MISMATCH),
    errors.ChannelNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_CHANNEL_NOT_EXIST),
    errors.ChannelAlreadyExistsError: (_Code.ALREADY_EXISTS, error_pb2.REASON_CHANNEL_ALREADY_EXISTS),
    errors.BarrierNotReachedError: (_Code.DEADLINE_EXCEEDED, error_pb2.REASON_BARRIER_NOT_REACHED),
    errors.LastTickMismatchError: (_Code.ABORTED, error_pb2.REASON_LAST_TICK_MISMATCH),
    errors.FencingTokenMismatchError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_FENCING_TOKEN_MISMATCH),
    errors.ProducerFencedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_PRODUCER_FENCED),
    errors.SequenceGapError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_SEQUENCE_GAP),
    errors.SequenceReusedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_SEQUENCE_REUSED),
    errors.SequenceForgottenError: (_Code.ALREADY_EXISTS, error_pb2.REASON_SEQUENCE_FORGOTTEN),
    forgotten_errors.ProducerForgottenError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_PRODUCER_FORGOTTEN),
    errors.TxnSequenceGapError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_TRANSACTION_SEQUENCE_GAP),
    errors.TxnSequenceReusedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_TRANSACTION_SEQUENCE_REUSED),
    errors.TransactionIncompleteError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_TRANSACTION_INCOMPLETE),
    errors.TransactionExpiredError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_TRANSACTION_EXPIRED),
    errors.InvalidTransactionStateError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_INVALID_TRANSACTION_STATE),
    errors.TransactionNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_TRANSACTION_NOT_EXIST),
    errors.TransactionForeignError: (_Code.PERMISSION_DENIED, error_pb2.REASON_TRANSACTION_FOREIGN),
    errors.VchannelNotInTransactionError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_VCHANNEL_NOT_IN_TRANSACTION),
    errors.TransactionTooLargeError: (_Code.RESOURCE_EXHAUSTED, error_pb2.REASON_TRANSACTION_TOO_LARGE),
    errors.TransactionOutcomeForgottenError: (
        _Code.FAILED_PRECONDITION,
        error_pb2.REASON_TRANSACTION_OUTCOME_FORGOTTEN,
    ),
    app_errors.AppVersionPassedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_APP_VERSION_PASSED),
    app_errors.AppCommitMismatchError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_APP_COMMIT_MISMATCH),
    forgotten_errors.ApplicationForgottenError: (
        _Code.FAILED_PRECONDITION,
        error_pb2.REASON_APPLICATION_FORGOTTEN,
    ),
    errors.ResourceAcquiredError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_RESOURCE_ACQUIRED),
    errors.BroadcastVchannelUnknownError: (_Code.INVALID_ARGUMENT, error_pb2.REASON_BROADCAST_VCHANNEL_UNKNOWN),
    errors.BroadcastNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_BROADCAST_NOT_EXIST),
    errors.BroadcastReusedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_BROADCAST_REUSED),
    errors.BroadcastForgottenError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_BROADCAST_FORGOTTEN),
    errors.BroadcastAbortedError: (_Code.ABORTED, error_pb2.REASON_BROADCAST_ABORTED),
    errors.GroupNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_GROUP_NOT_EXIST),
    errors.GroupAlreadyExistsError: (_Code.ALREADY_EXISTS, error_pb2.REASON_GROUP_ALREADY_EXISTS),
    errors.GroupInUseError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_GROUP_IN_USE),
    errors.GroupNotSubscribedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_GROUP_NOT_SUBSCRIBED),
    errors.GroupMemberFencedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_GROUP_MEMBER_FENCED),
    errors.GroupPositionMovedError: (_Code.ABORTED, error_pb2.REASON_GROUP_POSITION_MOVED),
    forgotten_errors.ConsumeForgottenError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_CONSUME_FORGOTTEN),
    cluster_errors.MetadataUnavailableError: (_Code.UNAVAILABLE, error_pb2.REASON_METADATA_UNAVAILABLE),
    cluster_errors.OwnershipLostError: (_Code.UNAVAILABLE, error_pb2.REASON_OWNERSHIP_LOST),
    cluster_errors.NotOwnerError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_NOT_OWNER),
    cluster_errors.NotLeaderError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_NOT_LEADER),
    errors.PositionTrimmedError: (_Code.OUT_OF_RANGE, error_pb2.REASON_POSITION_TRIMMED),
    errors.PositionBeyondEndError: (_Code.OUT_OF_RANGE, error_pb2.REASON_POSITION_BEYOND_END),
    access_errors.UnauthenticatedError: (_Code.UNAUTHENTICATED, error_pb2.REASON_UNAUTHENTICATED),
    access_errors.CredentialsExpiredError: (_Code.UNAUTHENTICATED, error_pb2.REASON_CREDENTIALS_EXPIRED),
    access_errors.PermissionDeniedError: (_Code.PERMISSION_DENIED, error_pb2.REASON_PERMISSION_DENIED),
    access_errors.TokenNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_TOKEN_NOT_EXIST),
    access_errors.AuditFailedError: (_Code.UNAVAILABLE, error_pb2.REASON_AUDIT_FAILED),
    errors.RateLimitRejectedError: (_Code.RESOURCE_EXHAUSTED, error_pb2.REASON_RATE_LIMIT_REJECTED),
    errors.DiskFullError: (_Code.RESOURCE_EXHAUSTED, error_pb2.REASON_DISK_FULL),
    checkpoint_errors.CheckpointUnsupportedError: (_Code.FAILED_PRECONDITION, error_pb2.REASON_CHECKPOINT_UNSUPPORTED),
    checkpoint_errors.CheckpointNotExistError: (_Code.NOT_FOUND, error_pb2.REASON_CHECKPOINT_NOT_EXIST),
    checkpoint_errors.CheckpointFailedError: (_Code.INTERNAL, error_pb2.REASON_CHECKPOINT_FAILED),
    errors.ShutdownError: (_Code.UNAVAILABLE, error_pb2.REASON_ON_SHUTDOWN),
    errors.StorageFailedError: (_Code.INTERNAL, error_pb2.REASON_STORAGE_FAILED),
    storage_errors.StorageUnreadableError: (_Code.UNAVAILABLE, error_pb2.REASON_STORAGE_UNREADABLE),
    errors.DataLossError: (_Code.DATA_LOSS, error_pb2.REASON_DATA_LOSS),
    errors.InnerError: (_Code.INTERNAL, error_pb2.REASON_INNER),
}

_EFFECTS: Final = {Effect.NONE: error_pb2.EFFECT_NONE, Effect.UNKNOWN: error_pb2.EFFECT_UNKNOWN}


def detail_of(error: TidelogServerError) -> error_pb2.ErrorDetail:
    """Return the reason, effect and values of ``error`` as a message."""
    return error_pb2.ErrorDetail(
        reason=STATUS_BY_ERROR[type(error)][1], effect=_EFFECTS[error.effect], values=error.values
    )


def reason_of(error: TidelogServerError) -> str:
    """Return the name of the reason of ``error``, for metrics."""
    return error_pb2.Reason.Name(STATUS_BY_ERROR[type(error)][1])


def code_of(error: TidelogServerError) -> grpc.StatusCode:
    """Return the status code of ``error``."""
    return STATUS_BY_ERROR[type(error)][0]


def code_number_of(error: TidelogServerError) -> int:
    """Return the status code of ``error`` as a number."""
    number: int = code_of(error).value[0]
    return number


def text_of(error: TidelogServerError) -> str:
    """Return the text of ``error``, truncated to _MAX_TEXT_CHARACTERS."""
    return error.message[:_MAX_TEXT_CHARACTERS]


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
