"""What the refusals of the nodes mean for a pod without a place, and what helps."""
