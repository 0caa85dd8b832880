"""The planner page: a plan's points in a browser, with the site's factors as a form."""
