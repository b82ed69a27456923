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

from tidelog import _export
from tidelog.rocksmq._async_id_allocator import AsyncIDAllocator as AsyncIDAllocator
from tidelog.rocksmq._async_rocksmq import AsyncRocksMQ as AsyncRocksMQ
from tidelog.rocksmq._async_rocksmq import AsyncRocksMQConsumer as AsyncRocksMQConsumer
from tidelog.rocksmq._generated_consumer import RocksMQConsumer as RocksMQConsumer
from tidelog.rocksmq._generated_id_allocator import IDAllocator as IDAllocator
from tidelog.rocksmq._messages import ConsumerMessage as ConsumerMessage
from tidelog.rocksmq._messages import MessageNotFoundError as MessageNotFoundError
from tidelog.rocksmq._messages import ProducerMessage as ProducerMessage
from tidelog.rocksmq._sync_rocksmq import RocksMQ as RocksMQ
from tidelog.rocksmq._sync_rocksmq import new_rocksmq as new_rocksmq

_export(globals(), __name__)
new_rocksmq.__module__ = __name__
