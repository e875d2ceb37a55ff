"""What is missing now: nodes that are not Ready or do not come."""
