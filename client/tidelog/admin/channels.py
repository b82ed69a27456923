"""Channel calls of the asynchronous client: create, alter, describe, list and destroy."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final, Unpack

from tidelog.admin import channel_types as _wire
from tidelog.admin.channel_types import ChannelDescription, CreateOptions, OwnerDescription, Retention, RetentionChange
from tidelog.errors import ChannelsPartlyDoneError, TidelogError
from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.v1 import channel_service_pb2 as pb

NAMES_PER_REQUEST: Final = 100
"""The server's limit per request: that many fit into one atomic change of its metadata."""


class AsyncChannelCalls(ServiceCalls):
    """Channels, for ``AsyncClient``.

    A request has at most 100 names and is atomic. A call with more names sends several requests, one after the other,
    which together have the timeout of a call.
    If one of them fails after others have succeeded, the call raises ``ChannelsPartlyDoneError``, which lists both.
    """

    async def create_channel(self, name: str, **options: Unpack[CreateOptions]) -> ChannelDescription:
        """Create a channel, durably, and return it.

        Raises:
            ChannelAlreadyExistsError: The channel exists; with ``if_not_exists``, with another number of vchannels.
            InvalidRequestError: The name, the number of vchannels or the retention is invalid.
        """
        return (await self._create([name], 0, **options))[0]

    async def create_channels(
        self, names: Iterable[str] = (), *, number: int = 0, **options: Unpack[CreateOptions]
    ) -> list[ChannelDescription]:
        """Create channels, durably: ``names``, or ``number`` channels named by the server. Each request is atomic.

        With ``if_not_exists``, existing channels are not changed, nor is their retention.

        Raises:
            ChannelAlreadyExistsError: Some exist. None was created.
            InvalidRequestError: A name, number or setting is invalid. None was created.
            ChannelsPartlyDoneError: There are more than 100, and some were created.
        """
        return await self._create(list(names), number, **options)

    async def _create(
        self,
        wanted: Sequence[str],
        number: int,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> list[ChannelDescription]:
        settings: dict[str, Any] = {
            "owner": _wire.owner_to_wire(owner), "vchannels": vchannels, "if_not_exists": if_not_exists,
            "retention": _wire.retention_to_wire(retention),
        }  # fmt: skip
        if number and not wanted:
            requests = [pb.CreateChannelsRequest(number=share, **settings) for share in _shares(number)]
        else:
            # If both or neither are given, the server reports the error.
            requests = [pb.CreateChannelsRequest(names=part, number=number, **settings) for part in _parts(wanted)]
        # A retry is safe only if channels may exist already.
        answers = await self._in_turn(self._services.channels.CreateChannels, requests, is_idempotent=if_not_exists)
        return [_wire.channel_description(channel) for answer in answers for channel in answer.channels]

    async def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]:
        """Change settings of channels, durably, and return the channels in the order of ``names``.

        Each request is atomic. A ``Retention`` replaces all bounds; ``{"bytes": 1 << 30}`` changes one bound, and
        ``{"age": None}`` removes one.

        Raises:
            ChannelNotFoundError: Some do not exist. None was changed.
            InvalidRequestError: The resulting settings of a channel would contradict each other. None was changed.
            ChannelsPartlyDoneError: There are more than 100, and some were changed.
            ValueError: A setting is out of range.
        """
        change = _wire.retention_change(retention)
        requests = [pb.AlterChannelsRequest(names=part, retention=change) for part in _parts(list(names))]
        answers = await self._in_turn(self._services.channels.AlterChannels, requests, is_idempotent=True)
        return [_wire.channel_description(channel) for answer in answers for channel in answer.channels]

    async def destroy_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False, force: bool = False
    ) -> list[str]:
        """Delete channels with all their messages, and return the names that existed. Each request is atomic.

        Raises:
            ChannelNotFoundError: Some do not exist, and ``ignore_missing`` is not set. None was deleted.
            GroupInUseError: Members of a group consume one, and ``force`` is not set. None was deleted.
            ChannelsPartlyDoneError: There are more than 100, and some were deleted.
        """
        requests = [
            pb.DestroyChannelsRequest(names=part, ignore_missing=ignore_missing, force=force)
            for part in _parts(list(names))
        ]
        answers = await self._in_turn(self._services.channels.DestroyChannels, requests)
        return [name for answer in answers for name in answer.names]

    async def describe_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False
    ) -> list[ChannelDescription]:
        """Return the channels in the order of ``names``; with ``ignore_missing``, only those that exist.

        Raises:
            ChannelNotFoundError: Some do not exist, and ``ignore_missing`` is not set.
        """
        channels: list[ChannelDescription] = []
        deadline = Deadline(self.timeout_s)
        for part in _parts(list(names)):
            request = pb.DescribeChannelsRequest(names=part, ignore_missing=ignore_missing)
            answer = await self._read(self._services.channels.DescribeChannels, request, deadline)
            channels += map(_wire.channel_description, answer.channels)
        return channels

    async def list_channels(
        self, prefix: str = "", *, include_system: bool = False
    ) -> AsyncIterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, in order of name.

        System channels, whose names begin with ``_``, are yielded only with ``include_system`` or with such a prefix.
        """
        request = pb.ListChannelsRequest(prefix=prefix, include_system=include_system)
        async for answer in self._pages(lambda services: services.channels.ListChannels, request):
            for channel in answer.channels:
                yield _wire.channel_description(channel)

    async def _in_turn(self, method: Any, requests: Sequence[Any], *, is_idempotent: bool = False) -> list[Any]:
        """Send requests one after the other, and return the answers.

        Raises:
            ChannelsPartlyDoneError: A request failed after others had succeeded.
        """
        answers: list[Any] = []
        deadline = Deadline(self.timeout_s)
        for place, request in enumerate(requests):
            try:
                if answers:
                    deadline.check("the next request")
                answers.append(
                    await self._transport().call(
                        method, request, timeout_s=deadline.left_s, is_read=False, is_idempotent=is_idempotent
                    )
                )
            except TidelogError as error:
                if not answers:
                    raise
                raise _partly_done(requests, answers, place, error) from error
        return answers


def _partly_done(
    requests: Sequence[Any], answers: Sequence[Any], failed: int, cause: TidelogError
) -> ChannelsPartlyDoneError:
    done = [name for request in requests[:failed] for name in getattr(request, "names", ())] or [
        channel.name for answer in answers for channel in answer.channels
    ]
    rest = [name for request in requests[failed + 1 :] for name in request.names]
    asked = list(requests[failed].names)
    is_unknown = cause.effect == "unknown"
    return partly_done(
        cause, done=done, unknown=asked if is_unknown else [], not_done=rest if is_unknown else [*asked, *rest]
    )


def partly_done(
    cause: TidelogError, *, done: Sequence[str], not_done: Sequence[str], unknown: Sequence[str]
) -> ChannelsPartlyDoneError:
    """Return the error for a request that failed with ``cause`` after others had succeeded."""
    outcome = f", {len(unknown)} unknown" if unknown else ""
    error = ChannelsPartlyDoneError(
        f"{len(done)} channels done, {len(not_done)} not done{outcome}: {cause}",
        effect=cause.effect, values=cause.values,
    )  # fmt: skip
    error.done, error.not_done, error.unknown = tuple(done), tuple(not_done), tuple(unknown)
    return error


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    """Split ``names`` into parts of one request each. No names make one empty part, which the server rejects."""
    return [names[begin : begin + NAMES_PER_REQUEST] for begin in range(0, max(1, len(names)), NAMES_PER_REQUEST)]


def _shares(number: int) -> Iterator[int]:
    """Yield the number of channels of each request. A negative number is yielded unchanged; it cannot be encoded."""
    while number > NAMES_PER_REQUEST:
        yield NAMES_PER_REQUEST
        number -= NAMES_PER_REQUEST
    yield number
