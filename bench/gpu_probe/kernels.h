// The probe's kernels, as PTX that the driver compiles. Every loop ends: by a count, or by a time at most.
//
//   compute(ns, started, stop, sink)               busy: multiplies and adds, touches no memory but its flags
//   walk(ns, started, stop, from, words)           busy: reads and writes `words` 16-byte words again and again
//   read(from, words, sink)                        reads 16-byte words once; sink is written in no real case
//   write(to, words, value)                        fills 16-byte words
//   check(from, words, value, wrong)               sets `wrong` to 1 when a 16-byte word does not hold `value` four
//   times touch(from, stride, count, sink)               reads one 4-byte word of each stride store(to, stride, count)
//   writes one 4-byte word of each stride
//
// started, stop, wrong and sink are addresses of 4-byte words; ns is a 64-bit count of nanoseconds, words, stride and
// count are 64 bits. Any grid of one dimension will do: threads go through memory in strides of the grid. The busy
// kernels look at `stop` every 0.2 ms or so. It is the device's memory: where each thread reads a word of the host's,
// however seldom, an H200's link is full, and a copy beside them gets 0.8 instead of 55 GB/s.
#pragma once

namespace vedette::gpu {

constexpr const char* kernels_ptx = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry compute(.param .u64 p_ns, .param .u64 p_started, .param .u64 p_stop, .param .u64 p_sink)
{
  .reg .u64 %began, %now, %ns, %flag;
  .reg .u32 %i, %t, %one;
  .reg .f32 %x;
  .reg .pred %p;
  ld.param.u64 %ns, [p_ns];
  mov.u64 %began, %globaltimer;
  mov.u32 %one, 1;
  mov.u32 %t, %ctaid.x;
  mov.u32 %i, %tid.x;
  or.b32 %t, %t, %i;
  setp.ne.u32 %p, %t, 0;
  @%p bra started;
  ld.param.u64 %flag, [p_started];
  st.volatile.global.u32 [%flag], %one;
started:
  cvt.rn.f32.u32 %x, %i;
again:
  mov.u32 %i, 0;
burn:
  fma.rn.f32 %x, %x, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %x, %x, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %x, %x, 0f3F7FFFFE, 0f3F000000;
  fma.rn.f32 %x, %x, 0f3F7FFFFE, 0f3F000000;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, 16384;
  @%p bra burn;
  ld.param.u64 %flag, [p_stop];
  ld.volatile.global.u32 %t, [%flag];
  setp.ne.u32 %p, %t, 0;
  @%p bra done;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %began;
  setp.lt.u64 %p, %now, %ns;
  @%p bra again;
done:
  setp.gt.f32 %p, %x, 0f7E000000;
  @!%p bra end;
  ld.param.u64 %flag, [p_sink];
  st.global.u32 [%flag], %one;
end:
  ret;
}

.visible .entry walk(.param .u64 p_ns, .param .u64 p_started, .param .u64 p_stop, .param .u64 p_from,
                     .param .u64 p_words)
{
  .reg .u64 %began, %now, %ns, %flag, %from, %words, %first, %index, %step, %at;
  .reg .u32 %i, %t, %one, %a, %b, %c, %d;
  .reg .pred %p;
  ld.param.u64 %ns, [p_ns];
  ld.param.u64 %from, [p_from];
  ld.param.u64 %words, [p_words];
  mov.u64 %began, %globaltimer;
  mov.u32 %one, 1;
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %first, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %first, %first, %at;
  mul.wide.u32 %step, %b, %c;
  setp.ne.u64 %p, %first, 0;
  @%p bra again;
  ld.param.u64 %flag, [p_started];
  st.volatile.global.u32 [%flag], %one;
again:
  mov.u32 %i, 0;
next:
  mov.u64 %index, %first;
pass:
  setp.ge.u64 %p, %index, %words;
  @%p bra passed;
  mad.lo.u64 %at, %index, 16, %from;
  ld.volatile.global.v4.u32 {%a, %b, %c, %d}, [%at];
  add.u32 %a, %a, 1;
  st.volatile.global.v4.u32 [%at], {%a, %b, %c, %d};
  add.u64 %index, %index, %step;
  bra pass;
passed:
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, 64;
  @%p bra next;
  ld.param.u64 %flag, [p_stop];
  ld.volatile.global.u32 %t, [%flag];
  setp.ne.u32 %p, %t, 0;
  @%p bra done;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %began;
  setp.lt.u64 %p, %now, %ns;
  @%p bra again;
done:
  ret;
}

.visible .entry read(.param .u64 p_from, .param .u64 p_words, .param .u64 p_sink)
{
  .reg .u64 %from, %words, %index, %step, %at;
  .reg .u32 %i, %a, %b, %c, %d, %all;
  .reg .pred %p;
  ld.param.u64 %from, [p_from];
  ld.param.u64 %words, [p_words];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %index, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %index, %index, %at;
  mul.wide.u32 %step, %b, %c;
  mov.u32 %all, 0;
pass:
  setp.ge.u64 %p, %index, %words;
  @%p bra done;
  mad.lo.u64 %at, %index, 16, %from;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
  xor.b32 %a, %a, %b;
  xor.b32 %c, %c, %d;
  add.u32 %all, %all, %a;
  xor.b32 %all, %all, %c;
  add.u64 %index, %index, %step;
  bra pass;
done:
  setp.ne.u32 %p, %all, 0x9E3779B9;
  @%p bra end;
  ld.param.u64 %at, [p_sink];
  st.global.u32 [%at], %all;
end:
  ret;
}

.visible .entry write(.param .u64 p_to, .param .u64 p_words, .param .u32 p_value)
{
  .reg .u64 %to, %words, %index, %step, %at;
  .reg .u32 %i, %a, %b, %c, %value;
  .reg .pred %p;
  ld.param.u64 %to, [p_to];
  ld.param.u64 %words, [p_words];
  ld.param.u32 %value, [p_value];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %index, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %index, %index, %at;
  mul.wide.u32 %step, %b, %c;
pass:
  setp.ge.u64 %p, %index, %words;
  @%p bra end;
  mad.lo.u64 %at, %index, 16, %to;
  st.global.v4.u32 [%at], {%value, %value, %value, %value};
  add.u64 %index, %index, %step;
  bra pass;
end:
  ret;
}

.visible .entry check(.param .u64 p_from, .param .u64 p_words, .param .u32 p_value, .param .u64 p_wrong)
{
  .reg .u64 %from, %words, %index, %step, %at, %wrong;
  .reg .u32 %i, %a, %b, %c, %d, %value, %one;
  .reg .pred %p;
  ld.param.u64 %from, [p_from];
  ld.param.u64 %words, [p_words];
  ld.param.u32 %value, [p_value];
  ld.param.u64 %wrong, [p_wrong];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %index, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %index, %index, %at;
  mul.wide.u32 %step, %b, %c;
pass:
  setp.ge.u64 %p, %index, %words;
  @%p bra end;
  mad.lo.u64 %at, %index, 16, %from;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
  xor.b32 %a, %a, %value;
  xor.b32 %b, %b, %value;
  xor.b32 %c, %c, %value;
  xor.b32 %d, %d, %value;
  or.b32 %a, %a, %b;
  or.b32 %c, %c, %d;
  or.b32 %a, %a, %c;
  add.u64 %index, %index, %step;
  setp.eq.u32 %p, %a, 0;
  @%p bra pass;
  mov.u32 %one, 1;
  st.volatile.global.u32 [%wrong], %one;
  bra pass;
end:
  ret;
}

.visible .entry touch(.param .u64 p_from, .param .u64 p_stride, .param .u64 p_count, .param .u64 p_sink)
{
  .reg .u64 %from, %stride, %count, %index, %step, %at;
  .reg .u32 %i, %a, %b, %c, %all;
  .reg .pred %p;
  ld.param.u64 %from, [p_from];
  ld.param.u64 %stride, [p_stride];
  ld.param.u64 %count, [p_count];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %index, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %index, %index, %at;
  mul.wide.u32 %step, %b, %c;
  mov.u32 %all, 0;
pass:
  setp.ge.u64 %p, %index, %count;
  @%p bra done;
  mad.lo.u64 %at, %index, %stride, %from;
  ld.volatile.global.u32 %a, [%at];
  add.u32 %all, %all, %a;
  add.u64 %index, %index, %step;
  bra pass;
done:
  setp.ne.u32 %p, %all, 0x9E3779B9;
  @%p bra end;
  ld.param.u64 %at, [p_sink];
  st.global.u32 [%at], %all;
end:
  ret;
}

.visible .entry store(.param .u64 p_to, .param .u64 p_stride, .param .u64 p_count)
{
  .reg .u64 %to, %stride, %count, %index, %step, %at;
  .reg .u32 %i, %a, %b, %c;
  .reg .pred %p;
  ld.param.u64 %to, [p_to];
  ld.param.u64 %stride, [p_stride];
  ld.param.u64 %count, [p_count];
  mov.u32 %a, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %i, %tid.x;
  mov.u32 %c, %nctaid.x;
  mad.wide.u32 %index, %a, %b, 0;
  cvt.u64.u32 %at, %i;
  add.u64 %index, %index, %at;
  mul.wide.u32 %step, %b, %c;
pass:
  setp.ge.u64 %p, %index, %count;
  @%p bra end;
  mad.lo.u64 %at, %index, %stride, %to;
  st.volatile.global.u32 [%at], %i;
  add.u64 %index, %index, %step;
  bra pass;
end:
  ret;
}
)";

}  // namespace vedette::gpu
