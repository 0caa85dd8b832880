"""What Snakemake is asked for: which files a campaign's results consist of, and what each is made from.

The rules in workflow/rules/ use this; nothing here knows Snakemake.
"""
