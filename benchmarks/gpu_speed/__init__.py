"""What `benchmarks/one_gpu_speed.py` compares, and how it measures."""
