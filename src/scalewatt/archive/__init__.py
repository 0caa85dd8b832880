"""Archives of a campaign's results, in RO-Crate form: write, check and unpack them."""
