"""The network card that leads to the other machines; Gloo takes that of the host's name, often the loopback."""

import socket
import struct
import sys

_ADDRESS_OF = 0x8915  # SIOCGIFADDR


def interface_towards(address: str, port: int) -> str:
    """Return the name of the network card through which an address is reached; empty where that is not known.

    Args:
        address: of the machine of process 0, which for that one is its own

    Example:
        >>> interface_towards("127.0.0.1", 80) in ("lo", "")
        True
    """
    if sys.platform != "linux":
        return ""
    import fcntl

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))  # sends nothing; it looks the way up
            own = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                try:
                    found = fcntl.ioctl(probe.fileno(), _ADDRESS_OF, request)[20:24]
                except OSError:  # a card without an address
                    continue
                if found == own:
                    return name
    except OSError:
        return ""
    return ""
