"""Ports of this machine that nobody listens at. Another process may take one before it is used, which is rare."""

import contextlib
import socket


def free_ports(count):
    """All are held until the last one is drawn, so that none comes twice."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port():
    return free_ports(1)[0]
