"""Journals: their labels, selectors of labels, and the calls that apply, list and watch them."""
