#include "duty.h"

#include "settings.h"

struct duty duty_at(uint64_t now_ns) {
  uint64_t on = settings()->duty_on_ns, period = settings()->duty_period_ns, phase = now_ns % period;
  if (on == period) return (struct duty){true, UINT64_MAX};
  return (struct duty){phase < on, now_ns - phase + (phase < on ? on : period)};
}
