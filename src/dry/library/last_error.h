// What several files of the runtime share.
#pragma once

namespace headroom::dry {

extern thread_local int last_error;  // what cudaGetLastError gives
int failed(int status);              // keeps it; returns it

void* driver_function(const char* name);  // null, and a note, where the driver has none of that name

}  // namespace headroom::dry
