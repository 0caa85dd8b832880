"""What drawing shares that is no figure."""
