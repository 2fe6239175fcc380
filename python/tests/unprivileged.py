"""What programs may not do in containers and without privileges, for the children of a test: functions for subprocess's preexec_fn. As
tests/cli/environments_test.cc has them for C++.
"""

import ctypes
import ctypes.util
import os
import pathlib
import stat
import sys

nobody = 65534


def become_nobody():
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)


def become_nobody_without_userfaultfd():
    """As in a container under Docker's default profile."""
    become_nobody()
    seccomp = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    allow, refuse_with_eperm = 0x7FFF0000, 0x00050001
    filter = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(allow)))
    number = seccomp.seccomp_syscall_resolve_name(b"userfaultfd")
    if seccomp.seccomp_rule_add(filter, ctypes.c_uint32(refuse_with_eperm), number, 0) or seccomp.seccomp_load(filter):
        os._exit(1)


def reason_not_to():
    """None where a child of this process can become nobody and still find Python, torch and the package."""
    if os.geteuid() != 0:
        return "only root can become nobody"
    for path in (sys.executable, __file__, *(path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path)):
        for folder in pathlib.Path(os.path.realpath(path)).parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                return f"the folder {folder} is closed to other users than root"
    return None
