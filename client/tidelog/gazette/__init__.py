"""Exactly-once messages over journals: the rules of Gazette's ``message`` package on a Tidelog server."""
