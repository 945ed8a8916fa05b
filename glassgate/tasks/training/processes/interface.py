"""Finds the network interface to other machines. By default Gloo resolves the host name, often to the loopback."""

import socket
import struct
import sys

_SIOCGIFADDR = 0x8915


def interface_towards(address: str, port: int) -> str:
    """Return the name of the network interface that routes to an address; empty if unknown.

    Args:
        address: the address of process 0; in process 0 it is an address of this machine
        port: any port of the machine of process 0

    Example:
        >>> interface_towards("127.0.0.1", 80) in ("lo", "")
        True
    """
    if sys.platform != "linux":
        return ""
    import fcntl

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))  # sends no packet; it looks up the route
            local_address = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                try:
                    address_of_interface = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24]
                except OSError:  # an interface without an address
                    continue
                if address_of_interface == local_address:
                    return name
    except OSError:
        return ""
    return ""
