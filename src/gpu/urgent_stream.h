// A CUDA stream whose kernels' blocks start before those of other streams that wait for a multiprocessor.
#pragma once

namespace headroom {

class UrgentStream {
 public:
  explicit UrgentStream(int device);  // makes the device current for this thread
  ~UrgentStream();
  UrgentStream(const UrgentStream&) = delete;
  UrgentStream& operator=(const UrgentStream&) = delete;
  void* raw() const { return raw_; }  // a cudaStream_t

 private:
  void* raw_ = nullptr;
};

int priority_of(void* stream);  // a cudaStream_t; 0: the usual one

}  // namespace headroom
