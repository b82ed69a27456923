"""Where entries live: the log store, its implementations on RocksDB and in memory, and the start-up gate."""
