"""The planner page: one training chosen in a browser, forecast there from posterior samples."""
