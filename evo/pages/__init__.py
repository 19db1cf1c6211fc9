"""A champion's web page: its data, and the scripts that play it in a browser."""
