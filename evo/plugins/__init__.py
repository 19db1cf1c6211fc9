"""The registry of algorithms, environments and backends, and the base classes of their options."""
