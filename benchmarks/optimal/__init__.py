"""Compares the search for budget plans with optimal plans of small planning problems."""
