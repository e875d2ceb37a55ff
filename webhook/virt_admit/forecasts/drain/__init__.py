"""What a drain of a node does: to its VMs, to its other pods, and whether it ends."""
