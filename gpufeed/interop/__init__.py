"""Other libraries' arrays, in and out without a copy.

Each module knows one library, imports it on first use only, and speaks arrays and offsets, never
`LoDTensor`: so tensors can call it.
"""
