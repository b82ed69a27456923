"""Benchmarks of logs in an engine."""
