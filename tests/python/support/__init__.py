"""What several test modules share: modules to lower, cases to run and the comparison with eager PyTorch; no tests."""
