"""Terms of an append: durability and fencing token. Pure."""

from typing import Final, NamedTuple, get_args

from tidelog.types import Durability

_DURABILITIES: Final = get_args(Durability)


class AppendTerms(NamedTuple):
    """Terms that all appends of a batch share; appends with different terms are sent in different batches.

    Attributes:
        durability: When to acknowledge: ``sync`` or ``os``; None for the server's default.
        fencing_token: Token that the vchannel must have, 1 to 2^64 - 1; None for any.
    """

    durability: Durability | None = None
    fencing_token: int | None = None

    def checked(self) -> "AppendTerms":
        """Return these terms.

        Raises:
            ValueError: The durability is unknown, or the fencing token is out of range.
        """
        if self.durability is not None and self.durability not in _DURABILITIES:
            raise ValueError(
                f"durability is {self.durability!r}, expected 'sync', 'os', or None for the server's default"
            )
        if self.fencing_token is not None:
            check_fencing_token(self.fencing_token)
        return self


DEFAULT_TERMS: Final = AppendTerms()


def check_fencing_token(fencing_token: int) -> None:
    """Raise ValueError unless ``fencing_token`` is in 1 to 2^64 - 1."""
    if not 1 <= fencing_token < 1 << 64:
        raise ValueError(f"the fencing token is {fencing_token}, expected 1 to 2^64 - 1")
