"""Code that several test modules share: modules to lower, cases to run, and comparisons with eager. It has no tests."""
