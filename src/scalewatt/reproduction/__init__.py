"""Whether a campaign's results can be made again: environment, files, one run, its energy."""
