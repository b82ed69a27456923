"""The base class of the errors, and the attributes that read their values."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Generic, Literal, Self, TypeVar, overload

from tidelog.tick import Tick

Effect = Literal["none", "unknown"]
_Converted = TypeVar("_Converted")
_CLASS_OF_REASON: Final[dict[str, type["TidelogError"]]] = {}
_DESCRIBED: Final = ("tidelog.errors.", "tidelog.append.", "tidelog.mailboxes.")
"""Where the classes with a section in the page of errors are, until ``tidelog`` exports them."""


class TidelogError(Exception):
    """Base class of all errors of Tidelog. The gRPC error, if there was one, is the ``__cause__``.

    Attributes:
        effect: ``none`` if nothing changed, so repeating the call is safe; ``unknown`` if something may have changed.
        values: Details of the error, such as ``first_available_tick``; integers in decimal.
        reasons: The reasons on the wire for which this class is raised.
        page: The section of the documents that describes the error, as a path in the repository. A traceback shows it
            unless it is the one of all errors.
    """

    reasons: ClassVar[tuple[str, ...]] = ()
    page: ClassVar[str] = "docs/reference/errors.md#tidelogerror"

    def __init_subclass__(cls, *, reasons: tuple[str, ...] = ()) -> None:
        super().__init_subclass__()
        assert not _CLASS_OF_REASON.keys() & set(reasons), "two classes have one reason"
        cls.reasons = reasons
        if cls.__module__.startswith(_DESCRIBED):
            # A class of another package keeps the section of its parent.
            cls.page = f"{TidelogError.page.partition('#')[0]}#{cls.__name__.lower()}"
        _CLASS_OF_REASON.update(dict.fromkeys(reasons, cls))

    def __init__(self, message: str, *, effect: Effect = "none", values: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.effect: Effect = effect
        self.values: dict[str, str] = dict(values or {})
        if self.page != TidelogError.page:
            self.add_note(f"see {self.page}")


class Value(Generic[_Converted]):
    """An attribute of an error that is made of its ``values``."""

    def __init__(self, doc: str, convert: Callable[[Mapping[str, str], str], _Converted]) -> None:
        """Make an attribute with the docstring ``doc``; ``convert`` gets the values and the attribute's name."""
        self.__doc__, self._convert = doc, convert

    def __set_name__(self, owner: type[TidelogError], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, error: None, owner: type[TidelogError]) -> Self: ...
    @overload
    def __get__(self, error: TidelogError, owner: type[TidelogError]) -> _Converted: ...
    def __get__(self, error: TidelogError | None, owner: type[TidelogError]) -> Self | _Converted:
        return self if error is None else self._convert(error.values, self._name)

    def __set__(self, error: TidelogError, value: object) -> None:
        raise AttributeError(f"{self._name} cannot be set")


def text_value(doc: str) -> Value[str]:
    """Return an attribute with a text, empty if it is absent."""
    return Value(doc, lambda values, name: values.get(name, ""))


def number_value(doc: str) -> Value[int]:
    """Return an attribute with a number, 0 if it is absent."""
    return Value(doc, lambda values, name: int(values.get(name) or "0"))


def tick_value(doc: str) -> Value[Tick]:
    """Return an attribute with a tick, 0 if it is absent."""
    return Value(doc, lambda values, name: Tick(int(values.get(name) or "0")))


def names_value(doc: str) -> Value[tuple[str, ...]]:
    """Return an attribute with the names in ``values``; older servers send only one."""
    return Value(doc, lambda values, _: tuple(values.get("names", values.get("name", "")).split(",")))


def seconds_value(doc: str) -> Value[float]:
    """Return an attribute with seconds, 0 if absent. Its name ends with ``_s``, that of the value with ``_ms``."""
    return Value(doc, lambda values, name: int(values.get(f"{name.removesuffix('_s')}_ms") or "0") / 1_000)


def copy_of(error: TidelogError, effect: Effect | None = None) -> TidelogError:
    """Return a copy of ``error``, with ``effect`` instead of its own if it is set."""
    own = type(error)(str(error), effect=effect or error.effect, values=error.values)
    own.__cause__ = error.__cause__
    return own


def class_of_reason(reason: str) -> type[TidelogError]:
    """Return the class for a wire reason; ServerError for an unknown one, such as a newer server's."""
    return _CLASS_OF_REASON.get(reason) or _CLASS_OF_REASON["REASON_INNER"]
