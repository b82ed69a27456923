"""New channels fill the nodes evenly. Method: hypothesis, against the definition of evenly."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.channels.ownership import place

loads = st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 50), min_size=1)


@given(loads, st.integers(0, 40), st.integers(1, 5))
def test_each_goes_to_a_node_that_has_least_by_then(loads: dict[str, int], channels: int, vchannels: int) -> None:
    placed = place(loads, channels, vchannels)
    assert len(placed) == channels
    now = dict(loads)
    for node_id in placed:
        assert now[node_id] == min(now.values())
        now[node_id] += vchannels
    assert placed == place(dict(reversed(loads.items())), channels, vchannels)
