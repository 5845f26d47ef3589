"""Hostile options, plans, files and command lines: what is made to do harm is refused, or does none."""
