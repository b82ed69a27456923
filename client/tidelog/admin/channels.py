"""Channel calls of the asynchronous client: create, alter, describe, list and destroy."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Protocol, Unpack

from tidelog.admin import channel_types as _wire
from tidelog.admin.channel_types import ChannelDescription, CreateOptions, OwnerDescription, Retention, RetentionChange
from tidelog.errors import ChannelNotFoundError, ChannelsPartlyDoneError, ServerError, TidelogError
from tidelog.read.channel_patterns import ChannelPattern, is_pattern
from tidelog.read.scan_sources import Targets
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
            ChannelAlreadyExistsError: It exists; with ``if_not_exists``, with another number than ``vchannels``.
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
        vchannels: int | None = None,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> list[ChannelDescription]:
        settings: dict[str, Any] = {
            "owner": _wire.owner_to_wire(owner), "vchannels": vchannels or 0, "if_not_exists": if_not_exists,
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
        self,
        names: Iterable[str],
        *,
        retention: Retention | RetentionChange | None = None,
        vchannels: int | None = None,
    ) -> list[ChannelDescription]:
        """Change settings of channels, durably, and return the channels in the order of ``names``.

        Each request is atomic. A ``Retention`` replaces all bounds; ``{"bytes": 1 << 30}`` changes one bound, and
        ``{"age": None}`` removes one. With ``vchannels``, each channel has that many afterwards: more are added, from
        whose first message groups and following scans of the channel read on. The last of ``growths`` in the result
        separates the messages before from those after.

        Raises:
            ChannelNotFoundError: Some do not exist. None was changed.
            InvalidRequestError: The resulting settings of a channel would contradict each other, a channel has more
                vchannels, or holds the messages of a journal or mailbox. None was changed.
            OverloadedError: The node would have too many vchannels or positions of groups. None was changed.
            ChannelsPartlyDoneError: There are more than 100, and some were changed.
            ServerError: The server is older, and did not add the vchannels.
            ValueError: A setting is out of range, or none is given.
        """
        if retention is None and vchannels is None:
            raise ValueError("alter_channels was called without a change: set retention or vchannels")
        if vchannels is not None and vchannels < 1:
            raise ValueError(f"vchannels is {vchannels}, expected the number that each channel shall have, at least 1")
        change = _wire.retention_change({} if retention is None else retention)
        requests = [
            pb.AlterChannelsRequest(names=part, retention=change, vchannels=vchannels) for part in _parts(list(names))
        ]
        answers = await self._in_turn(self._services.channels.AlterChannels, requests, is_idempotent=True)
        altered = [_wire.channel_description(channel) for answer in answers for channel in answer.channels]
        for channel in altered:
            if vchannels is not None and len(channel.vchannels) < vchannels:
                raise ServerError(
                    f"channel '{channel.name}' has {len(channel.vchannels)} vchannels after the change, expected "
                    f"{vchannels}: the server is older and does not add vchannels; update it",
                    values={"name": channel.name},
                )
        return altered

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
        self, prefix: str = "", *, include_system: bool = False, only_readable: bool = False
    ) -> AsyncIterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, or match it as a pattern, in order of name.

        Args:
            prefix: Beginning of the names; or a pattern, if it contains ``*``, ``?`` or ``[``: see ``scan``.
            include_system: Whether to yield system channels too, whose names begin with ``_``. Such a prefix implies
                it, and no pattern matches them.
            only_readable: Whether to yield only channels that the caller may read. By default one permission of any
                kind on a channel suffices.

        Raises:
            ValueError: The pattern is invalid.
        """
        pattern = ChannelPattern(prefix) if is_pattern(prefix) else None
        request = pb.ListChannelsRequest(
            prefix=prefix if pattern is None else pattern.prefix,
            include_system=include_system,
            only_readable=only_readable,
        )
        async for answer in self._pages(lambda services: services.channels.ListChannels, request):
            for channel in answer.channels:
                if pattern is None or pattern.covers(channel.name):
                    yield _wire.channel_description(channel)

    async def vchannels_of(self, names: Iterable[str]) -> list[str]:
        """Return full names of vchannels, without duplicates: those of vchannels, channels and patterns of channels.

        The name of a channel stands for all of its vchannels, and a pattern for those of each matching channel that
        the caller may read.

        Raises:
            ChannelNotFoundError: A channel does not exist, or no channel matches a pattern.
            ValueError: A pattern is invalid.
        """
        return list((await targets_of(self, names)).vchannels)

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
                answers.append(await self._change(method, request, is_idempotent=is_idempotent, deadline=deadline))
            except TidelogError as error:
                if not answers:
                    raise
                done = [name for each in requests[:place] for name in getattr(each, "names", ())] or [
                    channel.name for answer in answers for channel in answer.channels
                ]
                rest = [name for each in requests[place + 1 :] for name in each.names]
                raise partly_done(error, done=done, failed=request.names, rest=rest) from error
        return answers


class Lookup(Protocol):
    """The calls that look channels up, of a server or of a cluster."""

    async def describe_channels(self, names: Iterable[str]) -> list[ChannelDescription]:
        """See ``AsyncClient.describe_channels``."""

    def list_channels(self, prefix: str, *, only_readable: bool) -> AsyncIterator[ChannelDescription]:
        """See ``AsyncClient.list_channels``."""


async def targets_of(lookup: Lookup, names: Iterable[str]) -> Targets:
    """Return what a scan of ``names`` reads; see ``AsyncChannelCalls.vchannels_of``."""
    wanted = list(dict.fromkeys(names))
    patterns = {name: ChannelPattern(name) for name in wanted if is_pattern(name)}
    channels = dict.fromkeys(name for name in wanted if "/" not in name and name not in patterns)
    matches: dict[str, list[str]] = {}
    known: dict[str, ChannelDescription] = {}
    for name, pattern in patterns.items():
        listed = [channel async for channel in lookup.list_channels(name, only_readable=True)]
        if not listed:
            text = f"no channel matches the pattern '{name}': {pattern.advice}"
            raise ChannelNotFoundError(text, values={"channel": name})
        matches[name] = [channel.name for channel in listed]
        known |= {channel.name: channel for channel in listed if channel.vchannels}
        # A node lists the channels of others without vchannels. A client of one server gets NotOwnerError.
        channels |= dict.fromkeys(channel.name for channel in listed if not channel.vchannels)
    unknown = [name for name in channels if name not in known]
    known |= {channel.name: channel for channel in (await lookup.describe_channels(unknown) if unknown else ())}
    found = (
        [vchannel.name for vchannel in known[channel].vchannels] if channel in known else [channel]
        for name in wanted
        for channel in matches.get(name, [name])
    )
    # A system channel is found under another name than its own.
    whole = {
        channel: [growth.vchannels for growth in known[channel].growths]
        for channel in chain(channels, *matches.values())
        if channel in known and channel[0] != "_"
    }
    return Targets(list(dict.fromkeys(chain.from_iterable(found))), whole)


def partly_done(
    cause: TidelogError, *, done: Sequence[str], failed: Sequence[str], rest: Sequence[str]
) -> ChannelsPartlyDoneError:
    """Return the error for a request for ``failed`` that failed with ``cause`` after others had succeeded."""
    unknown, not_done = ([*failed], [*rest]) if cause.effect == "unknown" else ([], [*failed, *rest])
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
