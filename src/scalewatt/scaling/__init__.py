"""The scaling model: time and energy of trainings, calibrated on results and predicted for campaigns."""
