"""The campaign's story as one self-contained page of HTML."""
