"""What a node or a program can and cannot do with spanlite, and what to do about it.

A check is a function of a `Probe`, which is all that it sees of the world outside, and of what was `Asked`; it gives
findings. It changes nothing: no file is written, no lock taken, nothing said to an agent. docs/doctor.md explains every
finding by its id.
"""
