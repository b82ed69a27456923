"""Blobs: bytes under the hash of their content, kept while something refers to them."""
