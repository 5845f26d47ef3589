"""Checks PyTorch's own lists of operators and modules, with their sample inputs: lowered, each has to equal eager.

``cases`` collects the entries from ``torch.testing``, ``compare`` runs a case, ``exceptions`` lists the entries that
PyTorch itself does not let agree, ``table`` writes the results, and ``python -m conformance`` runs all entries.
"""
