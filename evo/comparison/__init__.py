"""Methods over seeds: comparison files, statistics, tables and verdicts."""
