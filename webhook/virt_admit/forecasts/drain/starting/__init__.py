"""VMs whose start has just begun."""
