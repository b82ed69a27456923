"""The log as a message queue: channels, consumer groups, ``produce`` and ``consume``, with the names of RocksMQ.

::

    from tidelog.rocksmq import RocksMQ

    with RocksMQ("127.0.0.1:7420", name="shop") as mq:
        mq.create_channel("orders")
        mq.create_consumer_group("billing", "orders")
        mq.produce("orders", [b"one", b"two"])
        for message in mq.consume("billing", "orders", 10):
            print(message.msg_id, message.payload)

``docs/guides/rocksmq.md`` maps RocksMQ to this package, and lists the differences.
"""

from tidelog.rocksmq._async_id_allocator import AsyncIDAllocator
from tidelog.rocksmq._async_rocksmq import AsyncRocksMQ, AsyncRocksMQConsumer
from tidelog.rocksmq._generated_consumer import RocksMQConsumer
from tidelog.rocksmq._messages import ConsumerMessage, MessageNotFoundError, ProducerMessage
from tidelog.rocksmq._sync_rocksmq import IDAllocator, RocksMQ, new_rocksmq

__all__ = [
    "AsyncIDAllocator",
    "AsyncRocksMQ",
    "AsyncRocksMQConsumer",
    "ConsumerMessage",
    "IDAllocator",
    "MessageNotFoundError",
    "ProducerMessage",
    "RocksMQ",
    "RocksMQConsumer",
    "new_rocksmq",
]

for _name in __all__:
    # Show the public path, `tidelog.rocksmq.RocksMQ`, in error reports and pickles.
    globals()[_name].__module__ = __name__
del _name
