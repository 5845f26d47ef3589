"""Random programs, scripted and lowered, against eager.

``programs`` draws source text, ``check`` runs one program, ``python -m fuzz`` as many as asked for.
"""
