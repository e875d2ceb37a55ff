"""Where VMs could go: candidates now, what never changes, quotas, and the room that is left."""
