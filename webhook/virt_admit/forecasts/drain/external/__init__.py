"""VMs with the eviction strategy ``External``: who moves them, and whether that acts."""
