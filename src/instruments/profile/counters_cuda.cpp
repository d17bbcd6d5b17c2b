// CUPTI's range profiler around a whole call: one range, as many passes as the counters need.
#include "instruments/profile/counters.h"

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <vector>

#include "instruments/profile/activity.h"

namespace headroom::profile {

namespace {

constexpr std::array metrics = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "sm__cycles_elapsed.avg.per_second",
                                "gpu__time_duration.sum"};

struct Refused {
  std::string why;
};

std::string words_of(void* library, CUptiResult r) {
  if (r == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
    return "the driver keeps its performance counters to administrators; ask for NVreg_RestrictProfilingToAdminUsers=0, or CAP_SYS_ADMIN";
  const auto to_words = reinterpret_cast<decltype(&cuptiGetResultString)>(dlsym(library, "cuptiGetResultString"));
  const char* words = "it does not say why";
  if (to_words) to_words(r, &words);
  return std::string("CUPTI refuses to count: ") + words;
}

class Profiler {
 public:
  explicit Profiler(void* library) : library_(library) {}
  ~Profiler() {
    if (range_) {
      auto p = blank<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
      p.pRangeProfilerObject = range_;
      tried<decltype(&cuptiRangeProfilerDisable)>("cuptiRangeProfilerDisable", p);
    }
    if (host_) {
      auto p = blank<CUpti_Profiler_Host_Deinitialize_Params>(CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
      p.pHostObject = host_;
      tried<decltype(&cuptiProfilerHostDeinitialize)>("cuptiProfilerHostDeinitialize", p);
    }
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void prepare(int device) {
    auto start = blank<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
    call<decltype(&cuptiProfilerInitialize)>("cuptiProfilerInitialize", start);
    auto chip = blank<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
    chip.deviceIndex = std::size_t(device);
    call<decltype(&cuptiDeviceGetChipName)>("cuptiDeviceGetChipName", chip);

    auto available = blank<CUpti_Profiler_GetCounterAvailability_Params>(CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
    call<decltype(&cuptiProfilerGetCounterAvailability)>("cuptiProfilerGetCounterAvailability", available);
    availability_.resize(available.counterAvailabilityImageSize);
    available.pCounterAvailabilityImage = availability_.data();
    call<decltype(&cuptiProfilerGetCounterAvailability)>("cuptiProfilerGetCounterAvailability", available);

    auto host = blank<CUpti_Profiler_Host_Initialize_Params>(CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.pChipName;
    host.pCounterAvailabilityImage = availability_.data();
    call<decltype(&cuptiProfilerHostInitialize)>("cuptiProfilerHostInitialize", host);
    host_ = host.pHostObject;
    auto add = blank<CUpti_Profiler_Host_ConfigAddMetrics_Params>(CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
    add.pHostObject = host_;
    add.ppMetricNames = names_.data();
    add.numMetrics = names_.size();
    call<decltype(&cuptiProfilerHostConfigAddMetrics)>("cuptiProfilerHostConfigAddMetrics", add);
    auto size = blank<CUpti_Profiler_Host_GetConfigImageSize_Params>(CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
    size.pHostObject = host_;
    call<decltype(&cuptiProfilerHostGetConfigImageSize)>("cuptiProfilerHostGetConfigImageSize", size);
    config_.resize(size.configImageSize);
    auto config = blank<CUpti_Profiler_Host_GetConfigImage_Params>(CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
    config.pHostObject = host_;
    config.configImageSize = config_.size();
    config.pConfigImage = config_.data();
    call<decltype(&cuptiProfilerHostGetConfigImage)>("cuptiProfilerHostGetConfigImage", config);

    auto enable = blank<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
    call<decltype(&cuptiRangeProfilerEnable)>("cuptiRangeProfilerEnable", enable);
    range_ = enable.pRangeProfilerObject;
    auto bytes = blank<CUpti_RangeProfiler_GetCounterDataSize_Params>(CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
    bytes.pRangeProfilerObject = range_;
    bytes.pMetricNames = names_.data();
    bytes.numMetrics = names_.size();
    bytes.maxNumOfRanges = 1;
    bytes.maxNumRangeTreeNodes = 1;
    call<decltype(&cuptiRangeProfilerGetCounterDataSize)>("cuptiRangeProfilerGetCounterDataSize", bytes);
    data_.resize(bytes.counterDataSize);
    auto image =
        blank<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
    image.pRangeProfilerObject = range_;
    image.counterDataSize = data_.size();
    image.pCounterData = data_.data();
    call<decltype(&cuptiRangeProfilerCounterDataImageInitialize)>("cuptiRangeProfilerCounterDataImageInitialize", image);
    auto set = blank<CUpti_RangeProfiler_SetConfig_Params>(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
    set.pRangeProfilerObject = range_;
    set.configSize = config_.size();
    set.pConfig = config_.data();
    set.counterDataImageSize = data_.size();
    set.pCounterDataImage = data_.data();
    set.range = CUPTI_UserRange;
    set.replayMode = CUPTI_UserReplay;
    set.maxRangesPerPass = 1;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    set.passIndex = 0;
    set.targetNestingLevel = 1;
    call<decltype(&cuptiRangeProfilerSetConfig)>("cuptiRangeProfilerSetConfig", set);
  }

  bool pass(const std::function<void()>& work, const std::function<void()>& wait) {  // true when it was the last
    auto start = blank<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
    start.pRangeProfilerObject = range_;
    call<decltype(&cuptiRangeProfilerStart)>("cuptiRangeProfilerStart", start);
    auto push = blank<CUpti_RangeProfiler_PushRange_Params>(CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
    push.pRangeProfilerObject = range_;
    push.pRangeName = "call";
    call<decltype(&cuptiRangeProfilerPushRange)>("cuptiRangeProfilerPushRange", push);
    work();
    wait();
    auto pop = blank<CUpti_RangeProfiler_PopRange_Params>(CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
    pop.pRangeProfilerObject = range_;
    call<decltype(&cuptiRangeProfilerPopRange)>("cuptiRangeProfilerPopRange", pop);
    auto stop = blank<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
    stop.pRangeProfilerObject = range_;
    call<decltype(&cuptiRangeProfilerStop)>("cuptiRangeProfilerStop", stop);
    return stop.isAllPassSubmitted != 0;
  }

  std::array<double, metrics.size()> values() {
    auto decode = blank<CUpti_RangeProfiler_DecodeData_Params>(CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
    decode.pRangeProfilerObject = range_;
    call<decltype(&cuptiRangeProfilerDecodeData)>("cuptiRangeProfilerDecodeData", decode);
    std::array<double, metrics.size()> out{};
    auto read = blank<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
    read.pHostObject = host_;
    read.pCounterDataImage = data_.data();
    read.counterDataImageSize = data_.size();
    read.rangeIndex = 0;
    read.ppMetricNames = names_.data();
    read.numMetrics = names_.size();
    read.pMetricValues = out.data();
    call<decltype(&cuptiProfilerHostEvaluateToGpuValues)>("cuptiProfilerHostEvaluateToGpuValues", read);
    return out;
  }

 private:
  template <class Params>
  static Params blank(std::size_t size) {
    Params p{};
    p.structSize = size;
    return p;
  }
  template <class Function, class Params>
  CUptiResult tried(const char* name, Params& p) const noexcept {
    const auto function = reinterpret_cast<Function>(dlsym(library_, name));
    return function ? function(&p) : CUPTI_ERROR_NOT_SUPPORTED;
  }
  template <class Function, class Params>
  void call(const char* name, Params& p) const {
    if (const CUptiResult r = tried<Function>(name, p); r != CUPTI_SUCCESS) throw Refused{words_of(library_, r) + " (" + name + ")"};
  }

  void* library_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_RangeProfiler_Object* range_ = nullptr;
  std::vector<const char*> names_{metrics.begin(), metrics.end()};
  std::vector<std::uint8_t> availability_, config_, data_;
};

}  // namespace

Counted count_tensor_work(int device, const std::function<void()>& call, const std::function<void()>& wait) {
  Counted c;
  void* const library = open_cupti(&c.why);
  if (!library) return c;
  try {
    Profiler profiler(library);
    profiler.prepare(device);
    for (int passes = 0; !profiler.pass(call, wait);)
      if (++passes > 64) {
        c.why = "CUPTI never had enough passes";
        return c;
      }
    const auto values = profiler.values();
    c.tensor_share = values[0] / 100;
    c.sm_hz = values[1];
    c.ms = values[2] / 1e6;
  } catch (const Refused& r) { c.why = r.why; }
  return c;
}

}  // namespace headroom::profile
