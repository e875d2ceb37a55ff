"""What decides of pods of KubeVirt and CDI: patches of their operators, and what others write."""
