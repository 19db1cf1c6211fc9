"""What the training loop needs: generations, validation, tests, accounting, resuming."""
