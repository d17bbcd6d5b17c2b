#include "dry/doors.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "dry/library/host.h"
#include "dry/library/memory.h"
#include "dry/library/pace.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/library/torch.h"
#include "dry/library/values.h"
#include "dry/library/watchdog.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

extern "C" {
int headroom_dry_version(void) { return HEADROOM_DRY_DOORS; }

void headroom_dry_mark(const char* what, const char* text, int64_t value) {
  settle();
  host_worked();
  if (std::string_view(what ? what : "") == "phase") {
    phase_told(text ? text : "");
    if (std::string_view(text ? text : "") == "backward") backward_begins();
  }
  Recorder& record = Recorder::get();
  record.add(Mark{record.name(what ? what : ""), record.name(text ? text : ""), value});
}
uint32_t headroom_dry_scope(uint32_t number) {
  settle();
  return set_scope(number);
}
int headroom_dry_known(const void* p, size_t bytes, void* out) { return int(known(p, bytes, out)); }
void headroom_dry_know(void* p, size_t bytes, const void* from) { know(p, bytes, from); }
void headroom_dry_guess(void* p, size_t bytes, const void* from) { know(p, bytes, from, Knowledge::guessed); }
void headroom_dry_choose(void* p, size_t bytes, const void* from, int word) {
  know(p, bytes, from, word ? Knowledge::word : Knowledge::chosen);
}
void headroom_dry_forget(void* p, size_t bytes) { forget(p, bytes); }
void headroom_dry_forget_each(void* p, const int64_t* places, size_t count, size_t element, size_t bytes) {
  forget_each(p, std::span(places, count), element, bytes);
}
void headroom_dry_answer(const void* value, size_t bytes, int is_known) { answer(value, bytes, is_known != 0); }
void headroom_dry_unanswer(void) { unanswer(); }
void headroom_dry_unknown(const void* element, size_t bytes) { unknown_reads_as(element, bytes); }
uint64_t headroom_dry_work(void) { return work_given(); }
uint64_t headroom_dry_asked(void) { return torch_asked(); }
uint64_t headroom_dry_reads(void) { return reads().all; }
uint64_t headroom_dry_unknown_reads(void) { return reads().unknown; }
uint64_t headroom_dry_reads_here(void) { return reads_here().all; }
uint64_t headroom_dry_unknown_reads_here(void) { return reads_here().unknown; }
uint64_t headroom_dry_clock_ns(void) { return paced_ns(); }
int headroom_dry_on_device(const void* p) {
  int device = 0;
  return on_device(p, &device) ? device : -1;
}
int headroom_dry_peak(int device, uint64_t* allocated, uint64_t* reserved, int reset) {
  const TorchPeak peak = torch_peak(device, reset != 0);
  *allocated = peak.allocated;
  *reserved = peak.reserved;
  return device >= 0 && device < devices();
}
void headroom_dry_requests(uint32_t device, const void* requests, size_t count, int whole) {
  constexpr size_t most = 20000;  // an entry's length is counted in 16 bits
  const char* const from = static_cast<const char*>(requests);
  for (size_t i = 0; i < count; i += most) {
    const size_t n = std::min(most, count - i);
    Recorder::get().add(Requests{device, uint32_t(n), uint32_t(whole != 0), 0}, {from + i * sizeof(Request), n * sizeof(Request)});
  }
}
void headroom_dry_frames(int most) { set_frames(most); }
uint32_t headroom_dry_object(const void* object) { return number_of_object(object); }
}
