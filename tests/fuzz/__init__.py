"""Compares random programs, scripted and lowered, with eager.

``programs`` draws the source of a program, ``check`` runs it, and ``python -m fuzz`` runs many.
"""
