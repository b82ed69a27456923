"""Batches in columns: views, checks, conversion to rows, and pages of responses."""
