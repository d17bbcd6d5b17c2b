// What several files of the runtime share.
#pragma once

namespace headroom::dry {

extern thread_local int last_error;  // what cudaGetLastError gives
int failed(int status);              // keeps it; returns it

// Null where the driver has none of that name. It is a note, too, but where NVIDIA's own libraries ask: they ask for all that a driver may have.
void* driver_function(const char* name, const void* caller);

}  // namespace headroom::dry
