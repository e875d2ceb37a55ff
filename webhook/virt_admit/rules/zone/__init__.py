"""Zones of nodes."""
