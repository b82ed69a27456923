"""The demonstration behind ``make demo``: a year of flights through the log and into Spark, checked against its source.

It is a program on top of Tidelog, as a user would write one: it uses the client, Spark, and a server process of its
own, and nothing inside of the server.
"""
