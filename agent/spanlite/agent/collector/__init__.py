"""What runs inside a Python program that is traced: the native collector's handle, and its twin in Python.

Two collectors, one contract (tests/agent/collector): the library in agent/native, which is meant for production, and
the twin here, for programs that have no library for their machine. Everything here is the standard library alone: it
must not make the program import what it would not import by itself.

`abi` and `library` know ctypes, nobody else does; `cupti` knows what CUPTI is called.
"""
