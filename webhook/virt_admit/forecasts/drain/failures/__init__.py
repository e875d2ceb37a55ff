"""Starts of VMs that failed before a guest ran, and what they mean for others."""
