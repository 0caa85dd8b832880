"""What this machine can measure, what is missing for runs on it, and how to fix that."""
