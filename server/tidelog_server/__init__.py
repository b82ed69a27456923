"""The Tidelog server: a write-ahead log service over RocksDB and gRPC."""
