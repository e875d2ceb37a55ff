"""Drains of an upgrade that are not those of `kubectl drain`."""
