"""What this machine can measure, what is missing for runs on it, and what mends that."""
