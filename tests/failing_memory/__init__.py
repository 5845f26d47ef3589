"""Training steps in which chosen requests for memory fail, beside eager PyTorch."""
