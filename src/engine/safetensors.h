// Files of tensors in the safetensors format: eight bytes of header length, a JSON header, the bytes. Written beside the old file
// and renamed over it, so that a reader sees the old one or the new one, whole; read with every offset checked against the file.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/transfer.h"

namespace headroom::engine {

struct NamedTensor {
  std::string name;
  Tensor tensor;  // contiguous; read: the memory that its bytes go to
};

using Metadata = std::map<std::string, std::string>;

void write_safetensors(const std::string& path, const std::vector<NamedTensor>&, const Metadata&, HostView = {});

// The metadata; everything about the file but its tensors' bytes is checked.
Metadata read_safetensors_metadata(const std::string& path);

// Fills every tensor; one that is missing, or of another shape or type, and a damaged file are an Error (io) that says which.
// Nothing is written to any tensor before the whole file has been checked, its checksum included.
Metadata read_safetensors(const std::string& path, const std::vector<NamedTensor>&, HostView = {});

}  // namespace headroom::engine
