"""Fence Agents Remediation: its templates."""
