"""Meaning of errors, and retries. Method: each wire reason, and each kind of failure, by example.

Promises of docs/reference/guarantees.md: G12, G13.
"""

import pickle
import random
from itertools import islice

import grpc
import grpc.aio
import pytest

import tidelog
from tidelog.errors import class_of_reason
from tidelog.transport.retry import Retry, may_repeat
from tidelog.transport.status import error_of_detail, error_of_status
from tidelog.v1 import error_pb2

SENT_REASONS = [name for name in error_pb2.Reason.keys() if name != "REASON_UNSPECIFIED"]  # noqa: SIM118 - no mapping


def a_status(
    code: grpc.StatusCode, detail: error_pb2.ErrorDetail | None = None, message: str = "why"
) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata()
    if detail is not None:
        status = error_pb2.RpcStatus(code=code.value[0], message=message)
        status.details.add().Pack(detail)
        metadata.add("grpc-status-details-bin", status.SerializeToString())
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, message)


@pytest.mark.parametrize("reason", SENT_REASONS)
def test_every_reason_of_the_protocol_has_a_class(reason: str) -> None:
    kind = class_of_reason(reason)

    assert (kind is tidelog.ServerError) == (reason == "REASON_INNER")


def test_a_reason_from_the_future_is_a_server_error() -> None:
    assert type(error_of_detail("new", error_pb2.ErrorDetail(reason=99))) is tidelog.ServerError  # type: ignore[arg-type]  # a newer server's reason


def test_an_error_carries_the_values_of_its_detail() -> None:
    detail = error_pb2.ErrorDetail(
        reason=error_pb2.REASON_POSITION_TRIMMED,
        effect=error_pb2.EFFECT_NONE,
        values={"vchannel": "a/0", "requested_tick": "3", "first_available_tick": "9"},
    )

    error = error_of_status(a_status(grpc.StatusCode.OUT_OF_RANGE, detail), is_read=True)

    assert isinstance(error, tidelog.PositionTrimmedError)
    assert (error.vchannel, error.requested_tick, error.first_available_tick) == ("a/0", 3, 9)
    assert error.effect == "none"


@pytest.mark.parametrize(
    ("values", "names"), [({"name": "a", "names": "a,b"}, ("a", "b")), ({"name": "a"}, ("a",)), ({}, ("",))]
)
def test_names_are_those_of_the_values_or_the_one_of_an_older_server(
    values: dict[str, str], names: tuple[str, ...]
) -> None:
    assert tidelog.ChannelNotFoundError("why", values=values).names == names


def test_an_attribute_in_seconds_reads_a_value_in_milliseconds() -> None:
    error = tidelog.OverloadedError("why", values={"retry_after_ms": "1500"})

    assert error.retry_after_s == 1.5
    assert tidelog.OverloadedError("why").retry_after_s == 0
    with pytest.raises(AttributeError, match="retry_after_s"):
        setattr(error, "retry_after_s", 1.0)  # noqa: B010 - type checkers refuse the assignment


def test_a_bare_status_promises_nothing_unless_the_call_only_reads() -> None:
    status = a_status(grpc.StatusCode.UNAVAILABLE)

    assert error_of_status(status, is_read=True).effect == "none"
    assert error_of_status(status, is_read=False).effect == "unknown"
    assert isinstance(error_of_status(status, is_read=False, is_append=True), tidelog.AppendUnknownError)


def test_broken_details_count_as_none() -> None:
    status = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff"))
    )

    assert error_of_status(status, is_read=False).effect == "unknown"


def test_timeouts_are_timeout_errors() -> None:
    assert issubclass(tidelog.DeadlineError, TimeoutError)
    assert issubclass(tidelog.BarrierNotReachedError, TimeoutError)


def test_errors_survive_pickling() -> None:
    error = tidelog.PositionTrimmedError("gone", effect="none", values={"first_available_tick": "9"})

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), copy.effect, copy.values) == (type(error), "gone", "none", error.values)


@pytest.mark.parametrize(
    ("error", "is_repeated"),
    [
        (tidelog.UnavailableError("x"), True),
        (tidelog.OverloadedError("x"), True),
        (tidelog.ShutdownError("x"), True),
        (tidelog.UnavailableError("x", effect="unknown"), False),
        (tidelog.DiskFullError("x"), False),
        (tidelog.AppendUnknownError("x", effect="unknown"), False),
        (tidelog.InvalidRequestError("x"), False),
        (tidelog.DataLossError("x"), False),
    ],
)
def test_only_what_had_no_effect_and_may_pass_is_repeated(error: tidelog.TidelogError, *, is_repeated: bool) -> None:
    assert may_repeat(error) is is_repeated


def test_pauses_double_up_to_the_cap_and_differ_between_clients() -> None:
    retry = Retry(base_s=0.05, cap_s=0.4)

    pauses = list(islice(retry.pauses_s(random.Random(1)), 6))
    others = list(islice(retry.pauses_s(random.Random(2)), 6))

    for pause, whole in zip(pauses, [0.05, 0.1, 0.2, 0.4, 0.4, 0.4], strict=True):
        assert whole / 2 <= pause < whole
    assert pauses != others


def test_a_retry_that_could_never_pause_is_refused() -> None:
    with pytest.raises(ValueError, match="base_s"):
        Retry(base_s=1, cap_s=0.5)
