"""Check whether a campaign's results can be reproduced: environment, files, one run, its energy."""
