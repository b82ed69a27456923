"""Pieces have everything in order, are within their bounds, and are as few as possible."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.storage.pieces import in_pieces


@given(st.lists(st.integers(0, 12)), st.integers(1, 20), st.one_of(st.integers(1, 5), st.just(float("inf"))))
def test_pieces_are_within_bounds_and_full(sizes: list[int], max_bytes: int, max_items: float) -> None:
    pieces = list(in_pieces(sizes, lambda size: size, max_bytes=max_bytes, max_items=max_items))

    assert [size for piece in pieces for size in piece] == sizes
    for piece in pieces:
        assert 1 <= len(piece) <= max_items
        assert sum(piece) <= max_bytes or len(piece) == 1
    for piece, following in pairwise(pieces):
        assert len(piece) == max_items or sum(piece) + following[0] > max_bytes
