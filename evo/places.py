"""Where things lie in a run directory."""

MANIFEST = "manifest.jsonl"
POPULATION, RECORDS, DAMAGED, PUBLISHED = "population", "records", "damaged", "published"
CHAMPION = "champion.h5"
LARGEST_CHAMPION = 1 << 31  # bytes
