"""Pages of lists: names in order, those on which the caller has a permission only, in bounded steps."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import LIST_STEP_LOOKS, MAX_LIST_PAGE, MAX_PAGE_LOOKS
from tidelog_server.core.sorted_names import NamePattern, SortedNames
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.security.access import current_access
from tidelog_server.security.grants import Verb

_Item = TypeVar("_Item")
Patterns = Sequence[NamePattern] | None
Found = tuple[_Item | None, int]
"""An item, or None if a list does not have it; and the looks that this took."""
ANYTHING: Final[frozenset[Verb]] = frozenset()
"""For lists whose method needs a permission on everything."""
# To check one of several verbs takes as long as this number of looks.
_PERMISSION_LOOKS: Final = 2
_MAX_ID_DIGITS: Final = 20


class ContinuedRequest(Protocol):
    """A request for the page after another one."""

    page_token: str


class PagedRequest(ContinuedRequest, Protocol):
    """A request for a page of a size."""

    page_size: int


class Page(NamedTuple, Generic[_Item]):
    """A page of a list.

    Attributes:
        items: Its items, in the order of their names.
        next_token: Token of the next page; empty if this is the last one.
    """

    items: list[_Item]
    next_token: str


def id_in_token(request: ContinuedRequest, advice: str = "") -> int:
    """Return the id in a page token, 0 without a token. Raises InvalidRequestError."""
    token = request.page_token
    if token and (len(token) > _MAX_ID_DIGITS or not (token.isascii() and token.isdecimal())):
        raise InvalidRequestError(
            f"the page token is invalid: use next_page_token of the previous page{advice}", field="page_token"
        )
    return int(token or "0")


async def candidates(
    names: SortedNames,
    verbs: frozenset[Verb],
    looks: Looks,
    *,
    after: str = "",
    prefix: str = "",
    within: Patterns = None,
) -> AsyncIterator[str]:
    """Yield the names that the caller's grants may cover, in order, in turns. Names may come and go meanwhile.

    Takes a look or two for each of them, and none for other names.

    Args:
        names: All names.
        verbs: Verbs of which one is needed; ANYTHING for no check.
        looks: Those of the call.
        after: A name; only greater ones are yielded.
        prefix: Beginning of the names.
        within: Patterns of which one must cover a name; None for every name.
    """
    access = current_access() if verbs else None
    while True:
        # Each time, because the permissions of a watch may change.
        granted = None if access is None else access.candidates(verbs)
        found = names.page(LIST_STEP_LOOKS, prefix=prefix, after=after, within=(granted, within))
        if not found:
            return
        for name in found:
            await looks.take(1 if access is None else _PERMISSION_LOOKS)
            yield name
        after = found[-1]


async def page_of(
    request: PagedRequest, names: SortedNames, verbs: frozenset[Verb], find: Callable[[str], Found[_Item]],
    looks: Looks, *, prefix: str = "", within: Patterns = None, maximum: int = MAX_LIST_PAGE,
) -> Page[_Item]:  # fmt: skip
    """Return a page of a list. It ends early, with a token, once the call has taken MAX_PAGE_LOOKS.

    Args:
        request: Size and token. The token is a name, so that items may be created and deleted between pages.
        names: Names of all items.
        verbs: Verbs of which the caller needs one on a name; ANYTHING for no check.
        find: Returns the item with a name.
        looks: Those of the call.
        prefix: As for ``candidates``.
        within: As for ``candidates``.
        maximum: Greatest size of a page.

    Raises:
        InvalidRequestError: The size is too great.
    """
    if request.page_size > maximum:
        raise InvalidRequestError(f"page_size is {request.page_size}, expected 1 to {maximum}, or 0", field="page_size")
    size, after, last = request.page_size or maximum, request.page_token, ""
    items: list[_Item] = []
    access = current_access() if verbs else None
    async for name in candidates(names, verbs, looks, after=after, prefix=prefix, within=within):
        if looks.count > MAX_PAGE_LOOKS:
            return Page(items, after)
        is_visible = access is None or access.may(verbs, name)
        item, taken = find(name) if is_visible else (None, 0)
        await looks.take(taken)
        if item is not None:
            if len(items) == size:
                return Page(items, last)
            items.append(item)
            last = name
        after = name
    return Page(items, "")
