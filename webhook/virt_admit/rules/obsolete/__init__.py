"""Obsolete CPU models."""
