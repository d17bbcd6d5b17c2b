// What the program launches: streams, events, graphs, kernels beside marks.
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "cuda_calls.h"

namespace {

// More than a tenth of a second of the card, a quarter of that of the host.
void keep_busy(void* stream) {
  constexpr std::size_t bytes = 256 * mib;
  static char* const memory = allocate(bytes);
  for (int i = 0; i < 1000; ++i) call("cudaMemsetAsync", static_cast<void*>(memory), 0, bytes, stream);
}

// A fifth of a second of the host, by the pace of a program without Python: 27 us for each launch.
void go_on(void* stream) {
  for (int i = 0; i < 8000; ++i) launch(stream);
}

void streams() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *first = nullptr, *second = nullptr;
  call("cudaStreamCreateWithPriority", &a, 1u, -1);
  call("cudaStreamCreateWithFlags", &b, 1u);
  call("cudaEventCreateWithFlags", &first, 0u);
  call("cudaEventCreate", &second);
  call("cudaEventRecord", first, a);
  keep_busy(a);
  usleep(200000);  // this machine's time decides nothing
  call("cudaEventRecord", second, a);
  print(call("cudaEventQuery", second) == 600 && call("cudaStreamQuery", a) == 600);
  print(call("cudaStreamQuery", b));
  call("cudaStreamWaitEvent", b, second, 0u);
  print(call("cudaStreamQuery", b));
  print(call("cudaEventSynchronize", second));
  print(call("cudaEventQuery", second));
  print(call("cudaStreamQuery", b));
  float ms = 0;
  call("cudaEventElapsedTime", &ms, first, second);
  print(ms > 90 && ms < 200);
  print(call("cudaDeviceSynchronize"));
}

// Two streams, the second of which waits for the first; what is asked of their events as PyTorch's allocator asks.
void order() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *c = nullptr, *first = nullptr, *second = nullptr, *beside = nullptr;
  call("cudaStreamCreate", &a);
  call("cudaStreamCreate", &b);
  call("cudaStreamCreate", &c);
  call("cudaEventCreate", &first);
  call("cudaEventCreate", &second);
  call("cudaEventCreate", &beside);
  print(call("cudaEventQuery", first));  // never recorded
  keep_busy(a);
  call("cudaEventRecord", first, a);
  print(call("cudaEventQuery", first));
  call("cudaStreamWaitEvent", b, first, 0u);
  call("cudaEventRecord", second, b);
  call("cudaEventRecord", beside, a);
  go_on(c);  // by the pace all is done
  print(call("cudaEventQuery", first));
  call("cudaEventSynchronize", second);
  print(call("cudaEventQuery", first));
  print(call("cudaEventQuery", beside));
  call("cudaStreamSynchronize", a);
  print(call("cudaEventQuery", beside));
  call("cudaEventRecord", beside, b);
  print(call("cudaEventQuery", beside) == 0 || call("cudaDeviceSynchronize") == 0);
  print(call("cudaEventQuery", beside));
}

// A program that asks until the card has done it comes to an end: asking takes time, too.
void asked_again() {
  void* event = nullptr;
  call("cudaEventCreate", &event);
  keep_busy(nullptr);
  call("cudaEventRecord", event, static_cast<void*>(nullptr));
  long long asked = 1;
  while (call("cudaEventQuery", event) != 0) ++asked;
  print(asked);
}

void graphs() {
  register_kernel();
  void *a = nullptr, *b = nullptr, *event = nullptr, *graph = nullptr, *executable = nullptr;
  call("cudaStreamCreate", &a);
  call("cudaStreamCreate", &b);
  call("cudaEventCreate", &event);
  call("cudaStreamBeginCapture", a, 0);
  launch(a);
  call("cudaEventRecord", event, a);
  call("cudaStreamWaitEvent", b, event, 0u);
  int a_captures = -1, b_captures = -1;
  call("cudaStreamIsCapturing", a, &a_captures);
  call("cudaStreamIsCapturing", b, &b_captures);
  print(a_captures);
  print(b_captures);
  launch(b);
  call("cudaStreamEndCapture", a, &graph);
  call("cudaStreamIsCapturing", b, &b_captures);
  print(b_captures);
  call("cudaGraphInstantiate", &executable, graph, 0ull);
  call("cudaGraphDestroy", graph);
  call("cudaGraphLaunch", executable, a);
  print(call("cudaGraphExecDestroy", executable));
}

void graph_memory() {  // what graphs take of the card while they can be launched
  register_kernel();
  void *stream = nullptr, *graph = nullptr, *first = nullptr, *second = nullptr;
  call("cudaStreamCreate", &stream);
  const long long free_before = free_mib();
  const auto taken = [&] { return free_before - free_mib(); };
  call("cudaStreamBeginCapture", stream, 0);
  for (int i = 0; i < 1000; ++i) launch(stream);
  call("cudaStreamEndCapture", stream, &graph);
  print(taken());
  for (void** const executable : {&first, &second}) {
    call("cudaGraphInstantiate", executable, graph, 0ull);
    print(taken());
  }
  call("cudaGraphDestroy", graph);
  for (void* const executable : {first, second}) {
    call("cudaGraphExecDestroy", executable);
    print(taken());
  }
}

void marks() {
  call("headroom_dry_mark", "phase", "forward", std::int64_t(3));
  print(call("headroom_dry_scope", std::uint32_t(5)));
  register_kernel();
  launch(nullptr);
  print(call("headroom_dry_scope", std::uint32_t(0)));
  print(call("headroom_dry_version"));
}

void speed() {
  register_kernel();
  constexpr int n = 500000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) launch(nullptr);
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  print((long long)(n / s.count()));
}

}  // namespace

const Words stream_words = {
    {"streams", streams}, {"order", order}, {"asked_again", asked_again}, {"graphs", graphs}, {"graph_memory", graph_memory},
    {"marks", marks},     {"speed", speed},
};
