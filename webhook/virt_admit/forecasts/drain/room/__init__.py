"""Whether all VMs of a node find room elsewhere at the same time, in words."""
