"""Journals."""
