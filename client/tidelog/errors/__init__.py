"""Errors of the client: the class states what the caller can do, ``effect`` whether anything may have changed.

``_generated_classes`` has a class for each reason of the protocol, from ``proto/tidelog/v1/error.proto``; ``local`` has
the errors that the client raises by itself. ``docs/reference/errors.md`` shows the tree. The text of an error is not an
interface; ``values`` and the attributes are.
"""

from tidelog.errors._generated_classes import *  # noqa: F403 - its names are those of its classes
from tidelog.errors.base import Effect as Effect
from tidelog.errors.base import TidelogError as TidelogError
from tidelog.errors.base import class_of_reason as class_of_reason
from tidelog.errors.base import copy_of as copy_of
from tidelog.errors.base import number_value as number_value
from tidelog.errors.base import text_value as text_value
from tidelog.errors.base import tick_value as tick_value
from tidelog.errors.local import BufferFullError as BufferFullError
from tidelog.errors.local import ChannelsPartlyDoneError as ChannelsPartlyDoneError
from tidelog.errors.local import ClosedError as ClosedError
from tidelog.errors.local import DeadlineError as DeadlineError
from tidelog.errors.local import ForkError as ForkError
from tidelog.errors.local import FrameTooLargeError as FrameTooLargeError
from tidelog.errors.local import ProducerStoppedError as ProducerStoppedError
