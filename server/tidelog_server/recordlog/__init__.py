"""One log of records, in an engine such as Kafka, that several processes may append to and one owns."""
