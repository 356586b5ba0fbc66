"""The text of busy kernels: what the driver compiles, so that a GPU's driver is all that is needed.

A busy kernel has the name, registers and static shared memory of the one that it stands for. Its first block writes the
GPU's time into the launch's cell; all blocks multiply and add until the launch's time is over, counted from that cell
(each from its own start until it sees it), or until the word of the stop is set. What they do not do is to use memory.
"""

from __future__ import annotations

import hashlib
import re
import struct
from string import Template

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$][A-Za-z0-9_$]+")
_LONGEST = 1000
OWN = (10, 9, 8, 7, 6, 4, 2, 0)
"""Registers beside those that are multiplied and added in: compilers differ; to be tried in this order."""
LEAST_REGISTERS, MOST_REGISTERS = 12, 255

_HEAD = ".version 6.3\n.target sm_70\n.address_size 64\n"
_BUSY = Template(
    """
.visible .entry $name(.param .u64 duration, .param .u64 cell, .param .u64 tag, .param .u64 stop)
.maxnreg $most
{
  .reg .pred %p, %first, %over, %told;
  .reg .u32 %x, %y, %z, %round, %word;
  .reg .u64 %duration, %cell, %tag, %stop, %seen, %now, %began, %mask;
  .reg .f32 %m, %a<$count>;
$shared
  mov.u64 %began, %globaltimer;
  ld.param.u64 %duration, [duration];
  ld.param.u64 %cell, [cell];
  ld.param.u64 %tag, [tag];
  ld.param.u64 %stop, [stop];
  mov.u64 %mask, 1099511627775;
  and.b64 %began, %began, %mask;
  mov.u32 %x, %tid.y;
  mov.u32 %y, %tid.z;
  or.b32 %y, %y, %x;
  mov.u32 %x, %tid.x;
  or.b32 %y, %y, %x;
  setp.eq.u32 %first, %y, 0;
  mov.u32 %z, %ctaid.x;
  mov.u32 %word, %ctaid.y;
  or.b32 %z, %z, %word;
  mov.u32 %word, %ctaid.z;
  or.b32 %z, %z, %word;
  or.b32 %z, %z, %y;
  setp.ne.u32 %p, %z, 0;
  mov.u32 %round, 0;
  cvt.rn.f32.u32 %m, %x;
$begin
  @%p bra RUN;
  shl.b64 %seen, %tag, 40;
  or.b64 %seen, %seen, %began;
  st.volatile.global.u64 [%cell], %seen;
RUN:
  setp.eq.u64 %p, %duration, 0;
  @%p bra END;
LOOP:
$work
  setp.ne.u32 %over, %z, %z;
  @!%first bra VOTE;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %began;
  and.b64 %now, %now, %mask;
  setp.ge.u64 %over, %now, %duration;
  @%over bra VOTE;
  and.b32 %word, %round, 63;
  add.u32 %round, %round, 1;
  setp.eq.u32 %p, %word, 63;
  @%p bra ASK;
  setp.gt.u32 %p, %round, 64;
  @%p bra VOTE;
  ld.volatile.global.u64 %seen, [%cell];
  shr.u64 %now, %seen, 40;
  setp.ne.u64 %p, %now, %tag;
  @%p bra VOTE;
  and.b64 %began, %seen, %mask;
  mov.u32 %round, 64;
  bra VOTE;
ASK:
  ld.volatile.global.u32 %word, [%stop];
  setp.ne.u32 %told, %word, 0;
  or.pred %over, %over, %told;
VOTE:
  bar.red.or.pred %p, 0, %over;
  @!%p bra LOOP;
  setp.ne.u64 %p, %duration, -1;
  @%p bra END;
$sum
  st.global.f32 [%cell], %m;
END:
  ret;
}
"""
)
CALIBRATION_NAME = "spanlite_calibration"
ECHO_NAME = "spanlite_echo"
ECHO = (
    _HEAD
    + """
.visible .entry spanlite_echo(.param .u64 box, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .u32 %rounds, %round, %ask;
  .reg .u64 %box, %now, %began;
  ld.param.u64 %box, [box];
  ld.param.u32 %rounds, [rounds];
  mov.u32 %round, 1;
NEXT:
  mov.u64 %began, %globaltimer;
WAIT:
  mov.u64 %now, %globaltimer;
  sub.u64 %began, %now, %began;
  setp.gt.u64 %p, %began, 4000000000;
  @%p bra END;
  sub.u64 %began, %now, %began;
  ld.volatile.global.u32 %ask, [%box];
  setp.ne.u32 %p, %ask, %round;
  @%p bra WAIT;
  mov.u64 %now, %globaltimer;
  st.volatile.global.u64 [%box+8], %now;
  membar.sys;
  st.volatile.global.u32 [%box+16], %round;
  add.u32 %round, %round, 1;
  setp.le.u32 %p, %round, %rounds;
  @%p bra NEXT;
END:
  ret;
}
"""
)
"""Answers the host with the GPU's time, so many times as it is told; gives up after 4 s without a question."""


def entry_name(name: str) -> str:
    """The name as a kernel can have it; one that cannot be had is made to fit, and stays unlike all others.

    Args:
        name: as archived: mangled (which fits) or of any other kind.
    """
    if _IDENTIFIER.fullmatch(name) and len(name) <= _LONGEST:
        return name
    fitting = re.sub(r"[^A-Za-z0-9_$]", "_", name)[:_LONGEST]
    return f"_{fitting}_{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"


def busy_text(entry: str, registers: int, *, static_shared: int = 0, own: int = OWN[0]) -> str:
    """PTX of a busy kernel.

    Args:
        entry: its name, see `entry_name`.
        registers: of a thread, 12 to 255; it has no more, and as many or a few less: that depends on the compiler.
        static_shared: bytes of shared memory that it declares.
        own: registers that are not multiplied and added in, as far as is known.
    """
    lines = range(max(registers - own, 1))
    return _HEAD + _BUSY.substitute(
        name=entry,
        most=min(max(registers, LEAST_REGISTERS), MOST_REGISTERS),
        count=len(lines),
        shared=f"  .shared .align 16 .b8 held[{static_shared}];" if static_shared else "",
        begin="\n".join(f"  add.f32 %a{at}, %m, {_number(at + 1)};" for at in lines)
        + ("\n  mov.u32 %word, held;\n  st.volatile.shared.u32 [%word], %x;" if static_shared else ""),
        work="\n".join(f"  fma.rn.f32 %a{at}, %a{at}, %m, %a{at};" for at in lines),
        sum="\n".join(f"  add.f32 %m, %m, %a{at};" for at in lines),
    )


def _number(value: int) -> str:
    return "0f" + struct.pack(">f", float(value)).hex().upper()
