"""Functions whose arguments need work in Python, and arrays of other libraries."""
