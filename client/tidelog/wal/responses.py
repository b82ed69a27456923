"""Messages for several vchannels in one call: grouping by vchannel, and the outcome of each message. Pure."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, overload

from tidelog.append.sizes import Appendable, measure
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.tick import Tick
from tidelog.types import AppendResult

_PAIR: Final = 2


class To(NamedTuple):
    """A message and its vchannel. A plain tuple is accepted as well."""

    vchannel: str
    message: Appendable


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """The outcome of one message: a result or an error.

    Attributes:
        result: Position of the message; None if it was not appended, or the outcome is unknown.
        error: The error, with its ``effect``; None if the message was appended. Messages appended together share it.
        txn_id: Id of the transaction that appended it; None without one.
    """

    result: AppendResult | None = None
    error: TidelogError | None = None
    txn_id: int | None = None


class AppendResponses(Sequence[AppendResponse]):
    """The outcome of each message, in the order of the call."""

    def __init__(self, responses: Iterable[AppendResponse]) -> None:
        self._responses = tuple(responses)

    @property
    def first_error(self) -> TidelogError | None:
        """Error of the first message that was not appended; None if all were appended."""
        return next((response.error for response in self._responses if response.error is not None), None)

    @property
    def largest_tick(self) -> Tick:
        """Greatest tick of the appended messages; 0 if no message was appended."""
        return max((each.result.last_tick for each in self._responses if each.result is not None), default=Tick(0))

    def results(self) -> list[AppendResult]:
        """Return the positions of the messages.

        Raises:
            TidelogError: ``first_error``. Other messages may have been appended: check each response.
        """
        if self.first_error is not None:
            raise self.first_error
        return [response.result for response in self._responses if response.result is not None]

    def __len__(self) -> int:
        return len(self._responses)

    @overload
    def __getitem__(self, index: int) -> AppendResponse: ...
    @overload
    def __getitem__(self, index: slice) -> "AppendResponses": ...
    def __getitem__(self, index: int | slice) -> "AppendResponse | AppendResponses":
        if isinstance(index, slice):
            return AppendResponses(self._responses[index])
        return self._responses[index]

    def __iter__(self) -> Iterator[AppendResponse]:
        return iter(self._responses)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppendResponses) and self._responses == other._responses

    def __hash__(self) -> int:
        return hash(self._responses)

    def __repr__(self) -> str:
        failed = sum(response.error is not None for response in self._responses)
        return f"<AppendResponses of {len(self)} messages, {failed} with an error>"


@dataclass(frozen=True, slots=True)
class Group:
    """The messages for one vchannel, in the order of the call.

    Attributes:
        vchannel: Name of the vchannel, or of a channel.
        messages: Messages, at least one.
        indexes: Index of each message in the call.
        has_two_names: Whether some messages name a channel, and others its first vchannel.
    """

    vchannel: str
    messages: Sequence[Appendable]
    indexes: Sequence[int]
    has_two_names: bool = False


def grouped(messages: Iterable[To | tuple[str, Appendable]], full_name: Callable[[str], str]) -> list[Group]:
    """Group ``messages`` by vchannel, in the order of each vchannel's first message.

    If a call uses two names for one vchannel, they form one group: two groups would lose the order of the messages. The
    group gets the shorter name.

    Args:
        messages: Pairs of a vchannel and a message.
        full_name: Function that maps all names of a vchannel to the same one.

    Raises:
        TypeError: An item is not such a pair.
    """
    found: dict[str, tuple[set[str], list[Appendable], list[int]]] = {}
    for index, pair in enumerate(messages):
        vchannel, message = _checked(index, pair)
        names, several, indexes = found.setdefault(full_name(vchannel), (set(), [], []))
        names.add(vchannel)
        several.append(message)
        indexes.append(index)
    return [Group(min(names, key=len), several, indexes, len(names) > 1) for names, several, indexes in found.values()]


def in_order(groups: Iterable[tuple[Group, Sequence[AppendResponse]]]) -> AppendResponses:
    """Return the responses of all groups, in the order of the call."""
    by_index = {
        index: response for group, responses in groups for index, response in zip(group.indexes, responses, strict=True)
    }
    return AppendResponses(by_index[index] for index in range(len(by_index)))


def _checked(index: int, pair: object) -> tuple[str, Appendable]:
    """Return ``pair``. Raises TypeError if it is not a pair of a vchannel and a message.

    A message whose values the log refuses fails its vchannel only, when it is appended.
    """
    if not isinstance(pair, tuple) or len(pair) != _PAIR or not isinstance(pair[0], str):
        raise TypeError(f"messages[{index}] is {pair!r:.80}, expected a pair of a vchannel and a message")
    vchannel, message = pair
    try:
        # The append of its vchannel reports what else is wrong with it.
        with contextlib.suppress(InvalidRequestError):
            measure(message)
    except TypeError as error:
        raise TypeError(f"messages[{index}]: {error}") from None
    return vchannel, message
