"""Champions and metrics as files of other libraries."""
