"""The bytes on disk: keys, values, the durable head, the files of the data folder. Independent of RocksDB."""
