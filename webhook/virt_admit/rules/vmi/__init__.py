"""Running virtual machine instances."""
