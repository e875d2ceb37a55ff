"""Pools of nodes that an upgrade goes through."""
