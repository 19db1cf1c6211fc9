"""Where tasks are played: a module with `Options` and `make(options, spec)` is a backend of that name."""
