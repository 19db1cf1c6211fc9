"""Names of files and folders in a run directory."""

MANIFEST = "manifest.jsonl"
POPULATION, RECORDS, DAMAGED, PUBLISHED = "population", "records", "damaged", "published"
CHAMPION = "champion.h5"
START = "start.h5"  # a copy of the champion that `run.init_from` names
LARGEST_CHAMPION = 1 << 31  # bytes
