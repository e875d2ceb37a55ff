"""What a remediation leaves behind."""
