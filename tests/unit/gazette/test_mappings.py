"""Mappings choose the journals that Gazette's choose. Method: hash vectors, exact shares, and counted keys."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tidelog.gazette import (
    EmptyListResponseError,
    JournalSpec,
    LabelSet,
    ListResponse,
    Mappable,
    MappingFunc,
    MappingKeyFunc,
    PartitionsFunc,
    key_func,
    mixed_rendezvous_mapping,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)
from tidelog.gazette.framings.framing import Writer
from tidelog.gazette.mappings import fnv1a_32

# Similar keys have similar hashes; these have every hash with the same probability.
KEYS = [f"{Random(number).getrandbits(64):x}" for number in range(20_000)]
ITSELF = key_func(str)


def topic(count: int) -> ListResponse:
    labels = LabelSet.of({"content-type": "application/x-ndjson"})
    return ListResponse(tuple(JournalSpec(f"a/topic/part-{number:03}", labels) for number in range(count)))


def chosen(make: Callable[[MappingKeyFunc, PartitionsFunc], MappingFunc], count: int) -> list[str]:
    response = topic(count)
    mapping = make(ITSELF, lambda: response)
    return [mapping(key)[0] for key in KEYS]


def shares(hashes: list[int], bit: int = 31) -> dict[int, float]:
    """Return the exact share of all keys for which each hash has the greatest XOR, with distinct hashes."""
    if len(hashes) == 1:
        return {hashes[0]: 1.0}
    ones = [each for each in hashes if each >> bit & 1]
    zeros = [each for each in hashes if not each >> bit & 1]
    if not ones or not zeros:
        return shares(hashes, bit - 1)
    # A key with a zero in this bit prefers the hashes with a one, and the other way around.
    halves = shares(ones, bit - 1) | shares(zeros, bit - 1)
    return {each: share / 2 for each, share in halves.items()}


@pytest.mark.parametrize(
    ("data", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968), (b"\xff", 0x7A0C5FC4)]
)
def test_the_hash_is_fnv_1a(data: bytes, value: int) -> None:
    expected = 0x811C9DC5
    for byte in data:
        expected = ((expected ^ byte) * 0x01000193) % 2**32
    assert fnv1a_32(data) == expected
    if data != b"\xff":
        assert expected == value


@pytest.mark.parametrize(
    ("count", "smallest", "largest"),
    [
        (2, 0.5, 0.5),
        (3, 0.25, 0.5),
        (4, 0.125, 0.5),
        (5, 0.125, 0.25),
        (8, 0.0625, 0.25),
        (10, 0.031, 0.5),
        (16, 0.0156, 0.5),
        (32, 0.0078, 0.125),
        (100, 0.0020, 0.0625),
    ],
)
def test_the_balance_of_rendezvous_is_that_of_gazette(count: int, smallest: float, largest: float) -> None:
    names = [journal.name for journal in topic(count).journals]
    exact = shares([fnv1a_32(name.encode()) for name in names])
    assert min(exact.values()) == pytest.approx(smallest, rel=0.03)
    assert max(exact.values()) == largest
    found = Counter(chosen(rendezvous_mapping, count))
    for name in names:
        assert found[name] / len(KEYS) == pytest.approx(exact[fnv1a_32(name.encode())], abs=0.012)
    if count == 10:
        assert found["a/topic/part-009"] / len(KEYS) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("count", [2, 3, 5, 10, 16])
@pytest.mark.parametrize("make", [mixed_rendezvous_mapping, modulo_mapping])
def test_the_other_mappings_are_balanced(
    make: Callable[[MappingKeyFunc, PartitionsFunc], MappingFunc], count: int
) -> None:
    found = Counter(chosen(make, count))
    assert len(found) == count
    assert all(each / len(KEYS) == pytest.approx(1 / count, rel=0.1) for each in found.values())


@pytest.mark.parametrize(("before", "moved"), [(4, 0.25), (8, 0.25), (9, 0.5), (10, 0.0625)])
def test_an_added_journal_takes_keys_and_no_others_move(before: int, moved: float) -> None:
    new = f"a/topic/part-{before:03}"
    pairs = list(zip(chosen(rendezvous_mapping, before), chosen(rendezvous_mapping, before + 1), strict=True))
    changes = [after for first, after in pairs if first != after]
    assert set(changes) == {new}
    assert len(changes) / len(KEYS) == pytest.approx(moved, abs=0.012)
    mixed = zip(chosen(mixed_rendezvous_mapping, before), chosen(mixed_rendezvous_mapping, before + 1), strict=True)
    assert {after for first, after in mixed if first != after} == {new}


def test_modulo_counts_in_the_order_of_the_list() -> None:
    response = ListResponse(topic(3).journals[::-1])
    mapping = modulo_mapping(ITSELF, lambda: response)
    assert mapping("")[0] == response.journals[0x811C9DC5 % 3].name


def test_ties_go_to_the_first_journal() -> None:
    one = topic(1).journals[0]
    first, second = JournalSpec(one.name, one.labels, 1), JournalSpec(one.name, LabelSet(), 2)
    response = ListResponse((first, second))
    assert rendezvous_mapping(ITSELF, lambda: response)("x") == (one.name, "application/x-ndjson")


def test_the_content_type_is_that_of_the_journal() -> None:
    journals = (JournalSpec("my/json", LabelSet.of({"content-type": "text/csv"})), JournalSpec("my/none"))
    response = ListResponse(journals)
    mapping = random_mapping(lambda: response)
    assert {mapping(None) for _ in range(100)} == {("my/json", "text/csv"), ("my/none", "")}


@pytest.mark.parametrize("make", [modulo_mapping, rendezvous_mapping, mixed_rendezvous_mapping])
def test_a_mapping_without_journals_raises_the_documented_error(
    make: Callable[[MappingKeyFunc, PartitionsFunc], MappingFunc],
) -> None:
    with pytest.raises(EmptyListResponseError, match=r"^empty ListResponse$"):
        make(ITSELF, ListResponse)("x")
    with pytest.raises(EmptyListResponseError, match=r"^empty ListResponse$"):
        random_mapping(ListResponse)("x")


def test_a_new_list_is_used_at_once() -> None:
    response = topic(1)
    mapping = mixed_rendezvous_mapping(ITSELF, lambda: response)
    assert {mapping(key)[0] for key in KEYS[:100]} == {"a/topic/part-000"}
    response = topic(4)
    assert len({mapping(key)[0] for key in KEYS[:100]}) == 4


def test_a_key_may_be_written_in_parts() -> None:
    def write(message: Mappable, writer: Writer) -> None:
        first, second = str(message).split("/")
        writer.write(first.encode())
        writer.write(second.encode())

    response = topic(10)
    parts = rendezvous_mapping(write, lambda: response)
    whole = rendezvous_mapping(key_func(lambda message: str(message).replace("/", "").encode()), lambda: response)
    assert all(parts(f"k/{number}") == whole(f"k/{number}") for number in range(100))
    written = bytearray()

    class Into:
        def write(self, data: bytes | bytearray | memoryview, /) -> None:
            written.extend(data)

    ITSELF("text", Into())
    assert written == b"text"
