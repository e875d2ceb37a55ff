"""Workloads with a pod on each node, of any product, and what VMs need of them there."""
