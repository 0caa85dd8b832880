"""From a drawing to its files: pictures, and its notes as captions."""
