"""Frames of workers: `u32 length, u8 type`, payload; little endian.

The worker of each language has its own copy of these constants, because it depends on no other module of the platform.
"""

from __future__ import annotations

import struct

LOAD = 1  # to the worker, once: JSON
CALL = 2  # to the worker: CALL_HEAD, params as JSON
FORK = 3  # to a snapshot, with descriptors for the fork: its socket, stdout, stderr and log journal
BEGIN = 4  # to an empty sandbox, once: the runtime to start, as JSON
SEALED = 15  # from the sandbox, with the descriptors of its network: it has dropped its privileges
READY = 16  # from the worker: it waits for LOAD
LOADED = 17  # from the worker: LOADED_HEAD, log block, message
REPLY = 18  # from the worker: REPLY_HEAD, head, log block, body
LATE = 19  # from the worker: activation id, log block (output after the reply)

HEAD = struct.Struct("<IB")
CALL_HEAD = struct.Struct("<IBIB32s13s")  # length, type, id, flags, activation id, deadline
LOADED_HEAD = struct.Struct("<BII")  # ok, load_us, log length
_REPLY = "IBHBIII"  # id, outcome, status, kind, run_us, head length, log length
REPLY_HEAD = struct.Struct(f"<{_REPLY}")
REPLY_FRAME = struct.Struct(f"<IB{_REPLY}")  # length, type, then REPLY_HEAD
WEB = 1  # flag of CALL: the worker returns an HTTP response

DONE, FAILED, ENDING = 0, 1, 2  # outcomes of REPLY
NO_BODY, HTML, JSON, DECLARED = 0, 1, 2, 3  # kinds of REPLY
