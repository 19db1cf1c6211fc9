"""Where things lie in a run directory."""

MANIFEST = "manifest.jsonl"
POPULATION, RECORDS, DAMAGED, PUBLISHED = "population", "records", "damaged", "published"
CHAMPION = "champion.h5"
START = "start.h5"  # what the run started from, where it did not start from nothing
LARGEST_CHAMPION = 1 << 31  # bytes
