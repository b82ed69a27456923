"""What is asked of an append beside its messages. Pure."""

from typing import Final, NamedTuple, get_args

from tidelog._types import Durability

_DURABILITIES: Final = get_args(Durability)


class AppendTerms(NamedTuple):
    """What the appends of one batch have in common; those with other terms travel in other batches.

    Attributes:
        durability: When they are acknowledged; None for the server's default.
        fencing_token: The token that the vchannel must have; None for any.
    """

    durability: Durability | None = None
    fencing_token: int | None = None

    def checked(self) -> "AppendTerms":
        """Return these terms.

        Raises:
            ValueError: An unknown durability, or a token that is none.
        """
        if self.durability is not None and self.durability not in _DURABILITIES:
            raise ValueError(
                f"durability {self.durability!r} is unknown: expected 'sync', 'os', or None for the server's"
            )
        if self.fencing_token is not None:
            check_fencing_token(self.fencing_token)
        return self


DEFAULT_TERMS: Final = AppendTerms()


def check_fencing_token(fencing_token: int) -> None:
    """Raise ValueError unless it is one: 1 or greater, in 64 bits."""
    if not 1 <= fencing_token < 1 << 64:
        raise ValueError(f"the fencing token is {fencing_token}, expected 1 to 2^64 - 1")
