"""PodDisruptionBudgets of pods that are not virtual machines."""
