"""A campaign at a glance as a page: a static file, written again while the campaign runs."""
