// Which CUDA devices this machine has. Without CUDA in the build, or without a driver, there are none.
#pragma once
#include "base/device.h"

namespace headroom {

int cuda_device_count();
Device cuda_device(int index);  // an Error (unsupported) that says what there is

}  // namespace headroom
