"""Dispatchers decode messages, with one function per message type."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final

from tidelog.msgstream._errors import MalformedMessageError, UnknownMsgTypeError
from tidelog.msgstream._generated_messages import BODIES, GeneralMsg
from tidelog.msgstream._generated_types import MsgType
from tidelog.msgstream._messages import ProtoMsg, TsMsg
from tidelog.msgstream._msg_type import known_type

UnmarshalFunc = Callable[[object], TsMsg]
"""Decodes a message from its argument: bytes, or whatever the dispatcher's caller passes."""

_CLASS_OF_TYPE: Final[dict[int, type[ProtoMsg]]] = {int(kind): body for body in BODIES for kind in body.TYPES}


def class_of_type(msg_type: MsgType | int) -> type[ProtoMsg]:
    """Return the class of messages of this type; GeneralMsg if the type has no body of its own."""
    return _CLASS_OF_TYPE.get(int(msg_type), GeneralMsg)


class UnmarshalDispatcher:
    """Decodes messages, with a template for each type. A factory creates it with the default templates.

    Each stream has its own.
    """

    def __init__(self, templates: Mapping[int, UnmarshalFunc] | None = None) -> None:
        """Create a dispatcher with these templates by type, which are known to return a TsMsg."""
        self._templates = dict(templates or {})

    def add_msg_template(self, msg_type: MsgType | int, unmarshal_func: UnmarshalFunc) -> None:
        """Decode messages of this type with ``unmarshal_func`` from now on; custom type numbers are allowed.

        Raises:
            ValueError: The number is not in 0 to 2^32 - 1.
            TypeError: ``unmarshal_func`` is not callable.
        """
        if not 0 <= msg_type < 1 << 32:
            raise ValueError(f"the message type is {msg_type}, expected 0 to {(1 << 32) - 1}")
        if not callable(unmarshal_func):
            raise TypeError(f"unmarshal_func is {type(unmarshal_func).__name__}, expected a function")
        self._templates[int(msg_type)] = _checked(int(msg_type), unmarshal_func)

    def unmarshal(self, data: object, msg_type: MsgType | int) -> TsMsg:
        """Return the message.

        Raises:
            UnknownMsgTypeError: There is no template for its type.
            MalformedMessageError: The data does not match its type.
        """
        template = self._templates.get(msg_type)
        if template is None:
            raise UnknownMsgTypeError(
                f"no template decodes messages of type {int(msg_type)}: expected a type of MsgType, or one added with "
                "add_msg_template",
                values={"msg_type": str(int(msg_type))},
            )
        return template(data)


class UnmarshalDispatcherFactory(ABC):
    """Creates dispatchers."""

    @abstractmethod
    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher with a template for each MsgType."""


class ProtoUDFactory(UnmarshalDispatcherFactory):
    """Creates dispatchers for encoded messages, which all streams of this package send."""

    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher of bytes."""
        return _with_templates(_from_bytes)


class MemUDFactory(UnmarshalDispatcherFactory):
    """Creates dispatchers for message objects that are passed within one process.

    A dispatcher returns copies, so the sender can change its message.
    """

    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher:
        """Return a dispatcher of messages."""
        return _with_templates(_from_message)


def _with_templates(template_for: Callable[[MsgType], UnmarshalFunc]) -> UnmarshalDispatcher:
    return UnmarshalDispatcher({int(msg_type): template_for(msg_type) for msg_type in MsgType})


def _checked(msg_type: int, unmarshal_func: UnmarshalFunc) -> UnmarshalFunc:
    """Return a template that raises MalformedMessageError if ``unmarshal_func`` returns no message."""

    def unmarshal(data: object) -> TsMsg:
        message = unmarshal_func(data)
        if not isinstance(message, TsMsg):
            raise MalformedMessageError(
                f"the template of type {msg_type} returned {type(message).__name__}: expected a TsMsg"
            )
        return message

    return unmarshal


def _from_bytes(msg_type: MsgType) -> UnmarshalFunc:
    unmarshal = class_of_type(msg_type).unmarshal
    return lambda data: unmarshal(data, msg_type)  # type: ignore[arg-type]  # It raises MalformedMessageError.


def _from_message(msg_type: MsgType) -> UnmarshalFunc:
    def copy(message: object) -> TsMsg:
        if not isinstance(message, TsMsg) or message.type != msg_type:
            found = known_type(message.type) if isinstance(message, TsMsg) else type(message).__name__
            raise MalformedMessageError(f"a message of type {msg_type!r} is {found!r}: expected a TsMsg of that type")
        return deepcopy(message)

    return copy
