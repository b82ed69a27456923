"""GroupService.JoinGroup: one member of a group, for the duration of its stream."""

import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from tidelog.v1 import group_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError, TidelogServerError
from tidelog_server.core.errors.groups import GroupMemberFencedError
from tidelog_server.core.limits import MAX_COMMITS_PER_REQUEST, MAX_GROUP_CHANNELS_PER_REQUEST
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import check_existing_channel_name, check_group_name
from tidelog_server.groups.groups import Groups
from tidelog_server.groups.members import Changes
from tidelog_server.groups.sessions import JoinTerms, MemberSession
from tidelog_server.groups.types import DEFAULT_SUBSCRIBER, Commit, Subscriber
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.columns.pages import bounded, check_tick
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.duplex import Duplex, Unanswered
from tidelog_server.rpc.requests import check_size, parsed
from tidelog_server.rpc.services.results import error_of
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import HOLDERS, Verb

MAX_MEMBER_ID_BYTES: Final = 64
MAX_MEMBER_DESCRIPTION_BYTES: Final = 256
DEFAULT_LEASE_MS: Final = 10_000
MIN_LEASE_MS: Final = 500
MAX_LEASE_MS: Final = 600_000
DEFAULT_RELEASE_WITHIN_MS: Final = 30_000
MAX_RELEASE_WITHIN_MS: Final = 3_600_000
# Unanswered commits of one member.
MAX_COMMITS_IN_FLIGHT: Final = 1_000

_MEMBER_ID_BYTES: Final = 8


@dataclass(slots=True, eq=False)
class _Answer(Unanswered):
    """A commit that has not been answered yet."""

    commit_id: int


class MemberCall(Duplex):
    """One JoinGroup: executes the steps of a member, and sends it assignments and results of commits."""

    _max_unanswered = MAX_COMMITS_IN_FLIGHT

    def __init__(self, groups: Groups, node: LogNode, context: Context) -> None:
        super().__init__(node, context)
        self._groups = groups
        self._answers: deque[_Answer] = deque()
        self._group = ""
        self._session: MemberSession
        self._response = pb.JoinGroupResponse()

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Serve the member until it leaves.

        Raises:
            InvalidRequestError, GroupNotExistError, ChannelNotExistError, RateLimitRejectedError: It cannot join.
            GroupMemberFencedError: It was evicted: its lease expired, or another call uses its member id.
            GroupNotExistError, ChannelNotExistError: It was evicted: the group or a channel was destroyed.
            ShutdownError, OwnershipLostError: The node serves no members now. The member must join again.
        """
        first = await anext(aiter(requests), None)
        if first is None:
            raise InvalidRequestError("the stream has no requests: send `join` first", field="step")
        terms = self._terms(_parse(first))
        # Else a member joins again, and is answered, as long as the node takes to stop.
        self._node.admission.check_serving()
        self._session = await self._groups.join(self._group, terms, subscriber())
        self._changed = self._session.changed
        try:
            await super().run(requests)
            # The member may have been evicted during the last write, before which `_write_answers` looked.
            if self._session.is_over:
                raise self._why_over()
            # A lost connection ends the requests too. Then this wait is cancelled: gRPC has reported the loss before
            # it completes another operation.
            await self._context.read()
            self._session.leave()
        finally:
            self._session.detach()

    def _terms(self, request: pb.JoinGroupRequest) -> JoinTerms:
        if request.WhichOneof("step") != "join":
            raise InvalidRequestError("the first request of the stream must have `join`", field="step")
        join = request.join
        if (access := current_access()) is not None:
            access.require(Verb.GROUP_CONSUME, join.group)
            for channel in join.channels:
                access.require(Verb.READ, channel)
        self._group = check_group_name(join.group)
        check_within(
            len(join.channels), 1, MAX_GROUP_CHANNELS_PER_REQUEST, "channels", "the member names {value} channels"
        )
        for field, text, maximum in (
            ("member_id", join.member_id, MAX_MEMBER_ID_BYTES),
            ("description", join.description, MAX_MEMBER_DESCRIPTION_BYTES),
        ):
            check_at_most(len(text.encode()), maximum, field, "the member's {field} has {value} bytes")
        return JoinTerms(
            join.member_id or secrets.token_hex(_MEMBER_ID_BYTES),
            join.description,
            frozenset(map(check_existing_channel_name, join.channels)),
            bounded(join.lease_ms, DEFAULT_LEASE_MS, MIN_LEASE_MS, MAX_LEASE_MS, "lease_ms") / 1_000,
            bounded(
                join.release_within_ms, DEFAULT_RELEASE_WITHIN_MS, 1, MAX_RELEASE_WITHIN_MS, "release_within_ms"
            ) / 1_000,
            join.incarnation,
            current_tenant(),
            join.accepts_changes,
        )  # fmt: skip

    def _take(self, encoded: bytes) -> None:
        request = _parse(encoded)
        self._session.keep_alive()
        match request.WhichOneof("step"):
            case "heartbeat":
                pass
            case "commit":
                self._commit(request.commit)
            case "release":
                self._session.release([(each.vchannel, each.epoch) for each in request.release.vchannels])
            case _:
                raise InvalidRequestError(
                    "the step is unknown, or `join` again: send `heartbeat`, `commit` or `release`", field="step"
                )

    def _commit(self, commit: pb.JoinGroupCommit) -> None:
        answer = _Answer(commit.commit_id)
        self._answers.append(answer)
        self._hold(0)
        try:
            check_within(
                len(commit.positions), 1, MAX_COMMITS_PER_REQUEST, "positions", "the commit has {value} positions"
            )
            member_id = self._session.member.member_id
            if self._session.is_over:
                raise self._why_over()
            commits = [
                Commit(self._group, each.vchannel, check_tick(each.next_tick, "next_tick"), member_id, each.epoch)
                for each in commit.positions
            ]
            answer.append = self._groups.commits.commit(commits, lambda _: self._changed.set())
        except TidelogServerError as error:
            answer.refusal = error
            self._changed.set()

    async def _answer(self) -> None:
        """Write a response after each change, until the stream ends; not longer, as members join again elsewhere."""
        member = self._session.member
        welcome = pb.JoinGroupWelcome(member_id=member.member_id, lease_ms=round(member.lease_s * 1_000))
        self._response.welcome.CopyFrom(welcome)
        while True:
            self._changed.clear()
            await self._write_answers()
            if self._failed is not None or (self._is_read_to_end and not self._answers):
                return
            try:
                self._node.admission.check_serving()
            except TidelogServerError as error:
                self._failed = error
                return
            await self._changed.wait()

    async def _write_answers(self) -> None:
        session = self._session
        if session.is_over and self._failed is None:
            self._failed = self._why_over()
        # Only if stale: most wake-ups are answers to commits.
        if session.is_stale and not session.is_over:
            self._add_holdings(session.take())
        while self._answers and self._answers[0].is_ready:
            answer = self._answers.popleft()
            self._response.committed.add(
                commit_id=answer.commit_id, error=None if answer.error is None else error_of(answer.error)
            )
            self._let_go(0)
        if self._response.ByteSize():
            response, self._response = self._response, pb.JoinGroupResponse()
            await self._context.write(response.SerializeToString())

    def _why_over(self) -> TidelogServerError:
        return self._session.member.cause or GroupMemberFencedError(
            group=self._group, vchannel="", member_id=self._session.member.member_id, epoch=0
        )

    def _add_holdings(self, changes: Changes) -> None:
        """Add holdings to the next response, also an empty list."""
        held = [
            pb.GroupAssignment(
                vchannel=holding.vchannel,
                epoch=holding.epoch,
                next_tick=holding.next_tick,
                is_revoked=holding.release_by_s is not None,
            )
            for holding in changes.held
        ]
        if changes.is_complete:
            self._response.assignments.CopyFrom(pb.GroupAssignments(vchannels=held))
        else:
            self._response.changes.CopyFrom(pb.GroupAssignmentChanges(vchannels=held, lost=changes.lost))


def _parse(encoded: bytes) -> pb.JoinGroupRequest:
    check_size(encoded)
    return parsed(pb.JoinGroupRequest, encoded, "JoinGroup")


def subscriber() -> Subscriber:
    """Return the caller of the current call as a subscriber.

    A group holds retention back on the channels where its subscriber has a verb of HOLDERS.
    """
    access = current_access()
    if access is None:
        return DEFAULT_SUBSCRIBER
    return Subscriber(access.tenant, lambda channel: access.may(HOLDERS, channel))
