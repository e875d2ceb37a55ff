"""Minimum CPU model."""
