"""Names and conditions of the vchannels of a transaction. Pure."""

from collections.abc import Iterable
from typing import TypeVar

from tidelog.errors import InvalidRequestError
from tidelog.tick import MAX_TICK

_Value = TypeVar("_Value")


def check_barrier_tick(barrier_tick: int | None) -> None:
    """Raise ValueError unless ``barrier_tick`` is None or in 0 … 2**63 - 1."""
    if barrier_tick is not None and not 0 <= barrier_tick <= MAX_TICK:
        raise ValueError(f"the barrier tick is {barrier_tick}, expected 0 to {MAX_TICK}")


def full_name(vchannel: str) -> str:
    """Return ``vchannel`` with its index; a name without index means index 0."""
    return vchannel if "/" in vchannel else f"{vchannel}/0"


def check_names(vchannels: Iterable[str]) -> None:
    """Raise InvalidRequestError if one vchannel has two names."""
    seen: set[str] = set()
    for name in map(full_name, vchannels):
        if name in seen:
            raise InvalidRequestError(f"the transaction appends to {name} under two names: use one of them")
        seen.add(name)


def one_value(name: str, vchannel: str, earlier: _Value | None, later: _Value | None) -> _Value | None:
    """Return the value of an option that is the same for all appends to a vchannel. Raises InvalidRequestError."""
    if earlier is not None and later is not None and earlier != later:
        raise InvalidRequestError(
            f"{name} of {vchannel} is {later}, but {earlier} in an earlier append of the transaction: use one value"
        )
    return earlier if later is None else later
