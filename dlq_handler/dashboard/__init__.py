"""The pages for a browser: what is wrong, since when, how much, what next."""
