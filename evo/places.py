"""Where things lie in a run directory."""

MANIFEST = "manifest.jsonl"
POPULATION, RECORDS, DAMAGED, PUBLISHED = "population", "records", "damaged", "published"
