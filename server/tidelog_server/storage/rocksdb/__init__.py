"""The log store on RocksDB."""
