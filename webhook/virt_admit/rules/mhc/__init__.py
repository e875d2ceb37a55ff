"""MachineHealthCheck, of machine.openshift.io and of Cluster API."""
