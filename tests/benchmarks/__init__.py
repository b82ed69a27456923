"""Benchmarks of this repository that are not commands of users; ``make bench`` runs them."""
