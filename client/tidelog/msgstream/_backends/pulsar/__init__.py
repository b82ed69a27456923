"""Streams on Apache Pulsar, through ``pulsar-client``, whose calls block: they run on threads.

``broker`` has the connection, ``producers`` and ``feeds`` write to and read from one topic, ``positions`` stores where
subscriptions are, ``admin`` creates and deletes topics. ``ids`` and ``names`` are pure.
"""
