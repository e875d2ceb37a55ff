"""What an administrator does by hand where no remediator acts."""
