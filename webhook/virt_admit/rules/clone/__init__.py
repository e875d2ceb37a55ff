"""Rules about clones of virtual machines."""
