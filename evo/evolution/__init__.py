"""What evolutionary algorithms share: populations, selection, ranks, sums of named noise."""
