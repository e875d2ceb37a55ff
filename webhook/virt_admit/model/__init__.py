"""Facts about Kubernetes objects: their fields, labels, selectors and units. Pure, and independent of all rules."""
