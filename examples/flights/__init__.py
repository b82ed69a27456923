"""The demonstration ``make demo``: append a year of flights, read them back in Spark, and compare with the source.

It is written as a user's program: it uses the client, Spark and a separate server process, and no server internals.
"""
