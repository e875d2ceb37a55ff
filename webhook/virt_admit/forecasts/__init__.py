"""Consequences: what would happen to VMs, nodes and upgrades.

Rules, commands and reports ask here; facts are in ``model``.
"""
