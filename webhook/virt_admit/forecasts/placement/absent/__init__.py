"""Nodes that are missing now: those that are not Ready, and those that do not come."""
