"""PodDisruptionBudgets that an operator owns: whether it makes way for a drain."""
