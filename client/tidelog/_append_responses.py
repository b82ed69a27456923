"""Messages for several vchannels in one call: how they are grouped, and what becomes of each. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, overload

from tidelog._errors import TidelogError
from tidelog._sizes import Appendable, measure
from tidelog._tick import Tick
from tidelog._types import AppendResult

_PAIR: Final = 2


class To(NamedTuple):
    """A message, and the vchannel that it goes to; a plain tuple is as good."""

    vchannel: str
    message: Appendable


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """What became of one message: it has a result or an error.

    Attributes:
        result: Where it is; None if it was not appended, or nobody knows.
        error: Why, with its ``effect``; None if it was appended. Messages that went together share it.
        txn_id: The transaction that it was appended in; None for none.
    """

    result: AppendResult | None = None
    error: TidelogError | None = None
    txn_id: int | None = None


class AppendResponses(Sequence[AppendResponse]):
    """What became of each message, in the order in which they were given."""

    def __init__(self, responses: Iterable[AppendResponse]) -> None:
        self._responses = tuple(responses)

    @property
    def first_error(self) -> TidelogError | None:
        """The error of the first message that has one; None if all were appended."""
        return next((response.error for response in self._responses if response.error is not None), None)

    @property
    def largest_tick(self) -> Tick:
        """The greatest tick of those that were appended; 0 if there are none."""
        return max((each.result.last_tick for each in self._responses if each.result is not None), default=Tick(0))

    def results(self) -> list[AppendResult]:
        """Return where the messages are.

        Raises:
            TidelogError: ``first_error``. Others may have been appended: look at each response.
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
    """The messages for one vchannel, in the order in which they were given.

    Attributes:
        vchannel: Its name.
        messages: At least one.
        indexes: Where each of them stood.
    """

    vchannel: str
    messages: Sequence[Appendable]
    indexes: Sequence[int]


def grouped(messages: Iterable[To | tuple[str, Appendable]], full_name: Callable[[str], str]) -> list[Group]:
    """Return ``messages`` by vchannel, in the order in which the vchannels came first.

    A vchannel under two names is one group: two would lose the order of its messages. It gets the shorter name, which
    the server refuses if it is not clear.

    Args:
        messages: Pairs of a vchannel and a message.
        full_name: Makes equal what names the same vchannel.

    Raises:
        TypeError: One is no such pair.
    """
    found: dict[str, tuple[set[str], list[Appendable], list[int]]] = {}
    for index, pair in enumerate(messages):
        vchannel, message = _checked(index, pair)
        names, several, indexes = found.setdefault(full_name(vchannel), (set(), [], []))
        names.add(vchannel)
        several.append(message)
        indexes.append(index)
    return [Group(min(names, key=len), several, indexes) for names, several, indexes in found.values()]


def in_order(groups: Iterable[tuple[Group, Sequence[AppendResponse]]]) -> AppendResponses:
    """Return the responses of all groups, each where its message stood."""
    by_index = {
        index: response for group, responses in groups for index, response in zip(group.indexes, responses, strict=True)
    }
    return AppendResponses(by_index[index] for index in range(len(by_index)))


def _checked(index: int, pair: object) -> tuple[str, Appendable]:
    """Return ``pair`` if it is one. Raises TypeError."""
    if not isinstance(pair, tuple) or len(pair) != _PAIR or not isinstance(pair[0], str):
        raise TypeError(f"messages[{index}] is {pair!r:.80}, expected a pair of a vchannel and a message")
    vchannel, message = pair
    try:
        measure(message)
    except TypeError as error:
        raise TypeError(f"messages[{index}]: {error}") from None
    return vchannel, message
