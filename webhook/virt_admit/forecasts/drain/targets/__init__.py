"""What the target pods of earlier migrations say about the next one."""
