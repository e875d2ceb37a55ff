"""The report of ``virt-admit explain`` about a health check."""
