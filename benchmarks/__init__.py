"""Speed as ratios. `python -m benchmarks [NAME …] [--json FILE]`."""
