"""Broadcasts: one message to many vchannels at one tick, with resource keys and acknowledgements."""
