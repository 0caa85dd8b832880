"""From a spec to the scheduler's jobs."""
