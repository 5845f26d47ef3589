"""Models as their authors wrote and scripted them, beside eager PyTorch: gradients, regions, peak and time."""
