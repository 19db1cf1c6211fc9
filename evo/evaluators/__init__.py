"""Where tasks are played: a module with `make(context)` is a backend of that name."""
