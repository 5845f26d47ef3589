"""PyTorch's own list of operators and modules, with its own inputs: lowered, each gives what eager gives.

``cases`` collects what to run from ``torch.testing``, ``compare`` runs one case, ``exceptions`` lists what PyTorch
itself does not allow, ``table`` writes what came out, ``python -m conformance`` runs it all.
"""
