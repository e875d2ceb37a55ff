"""Controllers that do not run: workloads without a ready pod, or scaled to 0."""
