"""A network namespace for the processes of one learner, unreachable from outside.

TensorFlow's servers listen on every interface, without authentication, and run what they receive. So where a learner's
processes are all on this machine, they have a network namespace (Linux) with nothing but a loopback interface.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

from evo.errors import ResourceError

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # <linux/sched.h>
SET_FLAGS, UP = 0x8914, 0x1 | 0x40  # <linux/sockios.h>, <linux/if.h>: up and running
REQUEST = struct.Struct("16sh14x")  # struct ifreq


def enter() -> None:
    """Move this process, which has one thread, into a new network; ResourceError where the system refuses."""
    try:
        if not sys.platform.startswith("linux"):
            raise OSError("this is not Linux")
        _unshare()
        import fcntl

        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SET_FLAGS, REQUEST.pack(b"lo", UP))
    except OSError as error:
        raise ResourceError(
            "learner.strategy: TensorFlow's servers would be open to everybody who reaches this machine: the system "
            f"refuses a network of their own ({error}); use a strategy of one process, or start the processes yourself "
            "where that is safe, with their addresses in TF_CONFIG"
        ) from error


def _unshare() -> None:
    """Leave the parent's network; without that permission, in a new user namespace of one user."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(NEW_NETWORK) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if system.unshare(NEW_USER | NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as out:
            out.write(text)
