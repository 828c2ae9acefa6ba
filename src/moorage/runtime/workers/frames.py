"""The frames that go to and from a cell: `u32 length, u8 type`, then what stands here. Little endian.

The worker of each language has its own copy of this: it must not depend on anything of ours.
"""

from __future__ import annotations

import struct

LOAD = 1  # to the cell, once: JSON
CALL = 2  # to the cell: CALL_HEAD, params as JSON
FORK = 3  # to a template: a socket and two outputs come along, for a fork of it to use
BEGIN = 4  # to a hull, once: which runtime to become, as JSON
SEALED = 15  # from the cell: it has given up its rights; the descriptors of its network come along
READY = 16  # from the cell: it waits for LOAD
LOADED = 17  # from the cell: LOADED_HEAD, log block, message
REPLY = 18  # from the cell: REPLY_HEAD, head, log block, body
LATE = 19  # from the cell: activation id, log block

HEAD = struct.Struct("<IB")
CALL_HEAD = struct.Struct("<IBIB32s13s")  # length, type, id, flags, activation id, deadline
LOADED_HEAD = struct.Struct("<BII")  # ok, load_us, log length
_REPLY = "IBHBIII"  # id, outcome, status, kind, run_us, head length, log length
REPLY_HEAD = struct.Struct(f"<{_REPLY}")
REPLY_FRAME = struct.Struct(f"<IB{_REPLY}")  # length, type, and the same
WEB = 1  # flag of CALL: the answer is to be shaped for HTTP

DONE, FAILED, ENDING = 0, 1, 2  # outcomes of REPLY
NO_BODY, HTML, JSON, DECLARED = 0, 1, 2, 3  # kinds of REPLY
