"""Which registration of a node may have ticks: the leader's knowledge of terms. Pure: no clock, no I/O."""

from collections.abc import Mapping

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.core.nodes import Node, NodeTerm


class Terms:
    """The newest registration of each node that this one has seen in the metadata store.

    Invariant: a term is refused once a greater one of its node was noted, so a leader that notes the term of a request
    before it allocates the ticks gives none above them to an earlier term.
    """

    def __init__(self, node_id: str) -> None:
        """``node_id`` names the node that may lead: it requests no ticks."""
        self._own_node_id = node_id
        self._newest: dict[str, int] = {}
        # The terms that their nodes have stated in requests.
        self._stated: dict[str, int] = {}

    def note(self, node: Node) -> None:
        """Record a registration, in any order."""
        node_id = node.record.node_id
        self._newest[node_id] = max(self.newest(node_id), node.term)

    def newest(self, node_id: str) -> int:
        """Return the greatest term of a node; 0 if none is known."""
        return self._newest.get(node_id, 0)

    def check(self, caller: NodeTerm | None, registered: Mapping[str, Node]) -> None:
        """Raise unless ``caller`` may have ticks.

        A caller that states no term is of an earlier version, and may be any process of that version. It is refused
        once every registered node has stated its term: then it can only be a former owner.

        Raises:
            OwnershipLostError: The caller's registration is not the newest one of its node, or does not exist.
            InvalidRequestError: The caller states no term, and every registered node does.
        """
        if caller is not None:
            if caller.term != self.newest(caller.node_id):
                raise OwnershipLostError(caller.node_id)
            self._stated[caller.node_id] = caller.term
        elif all(self._has_stated(node_id, node.term) for node_id, node in registered.items()):
            raise InvalidRequestError(
                "the request for ticks states no node and no term, but every registered node states them: it comes "
                "from a process whose registration has ended"
            )

    def _has_stated(self, node_id: str, term: int) -> bool:
        return node_id == self._own_node_id or self._stated.get(node_id, 0) >= term
