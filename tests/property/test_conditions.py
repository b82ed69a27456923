"""Appends under conditions behave like a compare-and-set on two numbers.

Method: random appends and fences on a node, some of them not durable yet, against a model that is a pair of numbers.

Promises of docs/reference/guarantees.md: G16.
"""

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import FencingTokenMismatchError, LastTickMismatchError, TidelogServerError
from tidelog_server.log.batch import Conditions
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import FaultyStore

# Difference of a condition from the actual value; most are 0.
ERRORS = st.sampled_from([0, 0, 0, 0, 1, -1])
NAMES = st.sampled_from(["a/0", "a/1"])


@dataclass(frozen=True)
class Append:
    """An append; None for no condition, a number for a condition that is off by it."""

    vchannel: str
    tick_error: int | None
    token_error: int | None
    count: int


@dataclass(frozen=True)
class Fence:
    """A fence; the number is the difference from the current token."""

    vchannel: str
    step: int


@dataclass(frozen=True)
class Wait:
    """Wait until everything is durable."""


STEPS = st.lists(
    st.builds(Append, NAMES, st.none() | ERRORS, st.none() | ERRORS, st.integers(1, 3))
    | st.builds(Fence, NAMES, st.integers(-1, 3))
    | st.builds(Wait),
    max_size=30,
)


# The error class, and the actual value in the error.
Refusal = tuple[type[TidelogServerError], str] | None


class Model:
    """The expected results of the node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.last_ticks = {"a/0": 0, "a/1": 0}
        self.tokens = {"a/0": 0, "a/1": 0}
        self.submitted: list[Submitted] = []

    async def append(self, step: Append) -> None:
        last_tick, token = self.last_ticks[step.vchannel], self.tokens[step.vchannel]
        expected_last_tick = None if step.tick_error is None else max(0, last_tick + step.tick_error)
        expected_token = 0 if step.token_error is None else max(0, token + step.token_error)
        expected: Refusal = None
        if expected_token not in (0, token):
            expected = (FencingTokenMismatchError, str(token))
        elif expected_last_tick not in (None, last_tick):
            expected = (LastTickMismatchError, str(last_tick))

        refusal: Refusal = None
        try:
            conditions = Conditions(expected_last_tick, expected_token)
            submitted = await self.node.submit(step.vchannel, a_batch(*[b"m"] * step.count), conditions=conditions)
        except FencingTokenMismatchError as error:
            refusal = (type(error), error.values["actual_fencing_token"])
        except LastTickMismatchError as error:
            refusal = (type(error), error.values["last_tick"])
        else:
            self.last_ticks[step.vchannel] = submitted.append.entries[0].last_tick
            self.submitted.append(submitted)

        assert refusal == expected

    async def fence(self, step: Fence) -> None:
        before = self.tokens[step.vchannel]
        token = max(1, before + step.step)
        refusal: Refusal = None
        try:
            await self.node.vchannels.fence(step.vchannel, token)
        except FencingTokenMismatchError as error:
            refusal = (type(error), error.values["actual_fencing_token"])
        else:
            self.tokens[step.vchannel] = token

        assert refusal == (None if before <= token else (FencingTokenMismatchError, str(before)))

    async def check(self) -> None:
        for submitted in self.submitted:
            await submitted.acknowledged()
        for vchannel in ("a/0", "a/1"):
            _, lane = self.node.directory.find(vchannel)
            tail = self.node.log.store.tail(lane.vchannel_id)
            assert (tail.last_tick, tail.fencing_token) == (self.last_ticks[vchannel], self.tokens[vchannel])


@given(STEPS)
def test_conditions_are_a_compare_and_set(steps: list[Append | Fence | Wait]) -> None:
    async def check() -> None:
        async with running_node(FaultyStore()) as node:
            await node.create("a", 2)
            model = Model(node)
            for step in steps:
                match step:
                    case Append():
                        await model.append(step)
                    case Fence():
                        await model.fence(step)
                    case Wait():
                        await model.check()
            await model.check()

    asyncio.run(check())
