"""Mappings: which journal of a topic a message is published to.

A mapping chooses among the journals that a ``PartitionsFunc`` returns, such as ``PolledList.list``. Keys and names are
hashed with FNV-1a of 32 bits, as in Gazette, so both systems map a key to the same journal. A mapping raises
``EmptyListResponseError`` if there are no journals to choose from.
Source: Gazette's message package, file routines.go.
"""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeAlias

from tidelog.gazette.errors import EmptyListResponseError
from tidelog.gazette.framings.framing import Writer, written_by
from tidelog.gazette.messages import Journal, Mappable, MappingFunc
from tidelog.journals.types import ListResponse

MappingKeyFunc: TypeAlias = Callable[[Mappable, Writer], None]
"""Writes the mapping key of a message; messages with the same key are mapped to the same journal."""

PartitionsFunc: TypeAlias = Callable[[], ListResponse]
"""Returns the journals to choose from: the same object while they are unchanged, because mappings prepare each once."""

_FNV_BASIS: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF
_HASHES_KEPT: Final = 16_384
_CHOICES_KEPT: Final = 65_536


class _Prepared(NamedTuple):
    """What a mapping prepared for one list.

    Attributes:
        response: The list.
        targets: Name and content type of each journal.
        hashes: Hash of each name.
        choices: Index of the journal by hash of the key, as far as it was computed.
    """

    response: ListResponse | None
    targets: Sequence[tuple[Journal, str]]
    hashes: Sequence[int]
    choices: dict[int, int]


_Choose: TypeAlias = Callable[[int, Sequence[int]], int]


def random_mapping(partitions: PartitionsFunc) -> MappingFunc:
    """Return a mapping to a journal chosen at random, each with the same probability."""
    prepared = _prepare(None)

    def mapping(_: Mappable) -> tuple[Journal, str]:
        nonlocal prepared
        current, response = prepared, partitions()
        if current.response is not response:
            current = prepared = _prepare(response)
        if not current.targets:
            raise EmptyListResponseError
        return random.choice(current.targets)

    return mapping


def modulo_mapping(key: MappingKeyFunc, partitions: PartitionsFunc) -> MappingFunc:
    """Return a mapping by ``hash mod count``, in the order of the list.

    It is balanced to 2 %, and moves most keys when a journal is added or removed.
    """
    return _mapping(key, partitions, _modulo)


def rendezvous_mapping(key: MappingKeyFunc, partitions: PartitionsFunc) -> MappingFunc:
    """Return Gazette's mapping by the greatest ``hash of key XOR hash of name``.

    A key moves only to a journal that is added, or from one that is removed. The balance is bad for names that differ
    in their last characters: of ten journals ``a/topic/part-000`` … ``part-009``, the last gets half of all keys. Use
    ``mixed_rendezvous_mapping`` where Gazette does not publish to the same journals.
    """
    return _mapping(key, partitions, _rendezvous)


def mixed_rendezvous_mapping(key: MappingKeyFunc, partitions: PartitionsFunc) -> MappingFunc:
    """Return a mapping as ``rendezvous_mapping``, with mixed weights: each journal gets the same share of the keys.

    This is the default for new programs.
    """
    return _mapping(key, partitions, _mixed_rendezvous)


class key_func:
    """Makes a ``MappingKeyFunc`` of a function that returns the key as text or bytes."""

    __slots__ = ("get",)

    def __init__(self, get: Callable[[Mappable], str | bytes]) -> None:
        self.get = get

    def __call__(self, message: Mappable, writer: Writer) -> None:
        """Write the key of ``message``."""
        key = self.get(message)
        writer.write(key.encode() if isinstance(key, str) else key)


def fnv1a_32(data: bytes) -> int:
    """Return the FNV-1a hash of ``data``, 32 bits."""
    value = _FNV_BASIS
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


_hash_of_key = lru_cache(_HASHES_KEPT)(fnv1a_32)


def _mapping(key: MappingKeyFunc, partitions: PartitionsFunc, choose: _Choose) -> MappingFunc:
    key_of = _reader_of(key)
    prepared = _prepare(None)

    def mapping(message: Mappable) -> tuple[Journal, str]:
        nonlocal prepared
        current, response = prepared, partitions()
        if current.response is not response:
            current = prepared = _prepare(response)
        if not current.targets:
            raise EmptyListResponseError
        hashed = _hash_of_key(key_of(message))
        choices = current.choices
        index = choices.get(hashed)
        if index is None:
            index = choose(hashed, current.hashes)
            if len(choices) < _CHOICES_KEPT:
                choices[hashed] = index
        return current.targets[index]

    return mapping


def _reader_of(key: MappingKeyFunc) -> Callable[[Mappable], bytes]:
    """Return a function that returns the key that ``key`` writes."""
    if isinstance(key, key_func):
        get = key.get

        def key_of(message: Mappable) -> bytes:
            value = get(message)
            return value.encode() if isinstance(value, str) else value

        return key_of

    return lambda message: written_by(partial(key, message))


def _prepare(response: ListResponse | None) -> _Prepared:
    journals = response.journals if response else ()
    targets = [(journal.name, journal.content_type) for journal in journals]
    return _Prepared(response, targets, [fnv1a_32(journal.name.encode()) for journal in journals], {})


def _modulo(key: int, names: Sequence[int]) -> int:
    return key % len(names)


def _rendezvous(key: int, names: Sequence[int]) -> int:
    weights = [key ^ name for name in names]
    return weights.index(max(weights))


def _mixed_rendezvous(key: int, names: Sequence[int]) -> int:
    weights = [_mixed(key ^ name) for name in names]
    return weights.index(max(weights))


def _mixed(value: int) -> int:
    """Return a permutation of 32 bits in which each bit depends on all others. Source: the finalizer of MurmurHash3."""
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16
