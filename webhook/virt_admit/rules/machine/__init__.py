"""Machines and MachineSets."""
