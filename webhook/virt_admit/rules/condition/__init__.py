"""Condition lists of health checks: MachineHealthCheck of both groups, and NodeHealthCheck."""
