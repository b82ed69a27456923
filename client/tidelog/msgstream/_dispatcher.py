"""Dispatchers: which function makes a message of bytes, by type."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy

from tidelog.msgstream._errors import MalformedMessageError, UnknownMsgTypeError
from tidelog.msgstream._messages import TsMsg, class_of_type
from tidelog.msgstream._msg_type import MsgType, known_type

UnmarshalFunc = Callable[[object], TsMsg]
"""Returns the message that its argument stands for: bytes, or whatever the dispatcher is given."""


class UnmarshalDispatcher:
    """Makes messages of what travelled, with a template for each type. A factory makes one with the default templates.

    Each stream has one of its own.
    """

    def __init__(self) -> None:
        self._templates: dict[int, UnmarshalFunc] = {}

    def add_msg_template(self, msg_type: MsgType | int, unmarshal_func: UnmarshalFunc) -> None:
        """Make messages of this type with ``unmarshal_func`` from now on; the type may be a number of your own.

        Raises:
            ValueError: The number is not between 0 and 2^32 - 1.
            TypeError: It is no function.
        """
        if not 0 <= msg_type < 1 << 32:
            raise ValueError(f"the message type is {msg_type}, expected 0 to {(1 << 32) - 1}")
        if not callable(unmarshal_func):
            raise TypeError(f"a template is a function of what travelled, not {type(unmarshal_func).__name__}")
        self._templates[int(msg_type)] = unmarshal_func

    def unmarshal(self, data: object, msg_type: MsgType | int) -> TsMsg:
        """Return the message.

        Raises:
            UnknownMsgTypeError: There is no template for its type.
            MalformedMessageError: It is not what its type says.
        """
        template = self._templates.get(msg_type)
        if template is None:
            raise UnknownMsgTypeError(
                f"no template makes messages of type {int(msg_type)}: expected a type of MsgType, or one that was "
                "added with add_msg_template",
                values={"msg_type": str(int(msg_type))},
            )
        message = template(data)
        if not isinstance(message, TsMsg):
            raise MalformedMessageError(
                f"the template of type {int(msg_type)} returned {type(message).__name__}: expected a TsMsg"
            )
        return message


class UnmarshalDispatcherFactory(ABC):
    """Makes dispatchers."""

    @abstractmethod
    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher with a template for each MsgType."""


class ProtoUDFactory(UnmarshalDispatcherFactory):
    """Makes dispatchers for messages that travel as bytes, as those of all streams here do."""

    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher of bytes."""
        return _with_templates(_from_bytes)


class MemUDFactory(UnmarshalDispatcherFactory):
    """Makes dispatchers for messages that are handed over as they are, within one process.

    What comes out is a copy: whoever sent the message may change his.
    """

    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher of messages."""
        return _with_templates(_from_message)


def _with_templates(template_for: Callable[[MsgType], UnmarshalFunc]) -> UnmarshalDispatcher:
    dispatcher = UnmarshalDispatcher()
    for msg_type in MsgType:
        dispatcher.add_msg_template(msg_type, template_for(msg_type))
    return dispatcher


def _from_bytes(msg_type: MsgType) -> UnmarshalFunc:
    kind = class_of_type(msg_type)

    def unmarshal(data: object) -> TsMsg:
        if not isinstance(data, bytes | memoryview):
            raise MalformedMessageError(
                f"a message of type {int(msg_type)} came as {type(data).__name__}: expected bytes, as marshal returns"
            )
        return kind.unmarshal(bytes(data), msg_type)

    return unmarshal


def _from_message(msg_type: MsgType) -> UnmarshalFunc:
    def copy(message: object) -> TsMsg:
        if not isinstance(message, TsMsg) or message.type != msg_type:
            found = known_type(message.type) if isinstance(message, TsMsg) else type(message).__name__
            raise MalformedMessageError(f"a message of type {msg_type!r} is {found!r}: expected a TsMsg of that type")
        return deepcopy(message)

    return copy
