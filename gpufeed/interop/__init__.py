"""Other libraries' arrays, in and out without a copy.

Each module knows one library and imports it on first use only; `dlpack` takes the arrays of all of
them and imports none. They speak arrays and offsets, never `LoDTensor`: so tensors can call them.
"""
