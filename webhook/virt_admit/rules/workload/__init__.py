"""Workload update strategies."""
