"""Changes of VMs that run: what brings them to the guest."""
