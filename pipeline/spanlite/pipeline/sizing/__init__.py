"""How much of everything a fleet needs: Kafka, the two stream jobs, exporters, Prometheus, agents, disks.

Plain arithmetic on what is asked and on the measured figures; each line of the result shows its own.
"""
