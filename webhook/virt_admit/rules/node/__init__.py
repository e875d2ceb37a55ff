"""Nodes: cordons, the CPU labeller, exclusion from remediation."""
