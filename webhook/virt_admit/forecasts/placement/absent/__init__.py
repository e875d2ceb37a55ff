"""What is missing now: nodes that are not Ready or do not come, workloads that do not run."""
