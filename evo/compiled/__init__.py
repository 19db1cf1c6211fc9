"""The contract of compiled games, the kernel cache, and buffers."""
