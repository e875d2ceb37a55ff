"""MachineHealthCheck of Cluster API."""
