"""A log store whose log is in an engine such as Kafka; the local database is a view of it."""
