// Files of tensors in the safetensors format: eight bytes of header length, a JSON header, the bytes. Written beside the old file
// and renamed over it, so that a reader sees the old one or the new one, whole; read with every offset checked against the file.
// What is written here carries two checksums in its metadata: "checksum" of the tensors' bytes, and "header_checksum" of everything
// else that the header says, the metadata and the first checksum included.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/store/transfer.h"

namespace headroom::engine {

struct NamedTensor {
  std::string name;
  Tensor tensor;     // contiguous; read: the memory that its bytes go to
  Tensor rest = {};  // if set, FP32 values are stored in two halves here and whole in the file (transfer.h)
  // Instead of the tensor's memory, where several ranks hold the values: the bytes of all of them. A writer asks twice.
  std::function<std::vector<char>()> bring = {};
  std::function<void(const char*)> take = {};

  DType type() const { return rest ? DType::f32 : tensor.dtype; }
  std::size_t bytes() const { return std::size_t(tensor.count()) * size_of(type()); }
};

using Metadata = std::map<std::string, std::string>;

struct StoredTensor {  // a tensor's place in a file
  std::string type;    // the format's word: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  std::uint64_t at = 0, bytes = 0;  // place in the file
};

struct SafetensorsHeader {
  Metadata metadata;
  std::map<std::string, StoredTensor> tensors;
};

// Everything about the file but its tensors' bytes is checked: they fill it one after another, none over another and no gap, and each
// is as long as its shape and type say; and the header against its checksum where it has one.
SafetensorsHeader read_safetensors_header(const std::string& path);

std::string shape_in_words(const std::vector<std::int64_t>&);  // "[10000, 256]"

void write_safetensors(const std::string& path, const std::vector<NamedTensor>&, const Metadata&, HostView = {});

// Reads a file that was written here. Fills every tensor; one that is missing, or of another shape or type, and a damaged file are an
// Error (io) that says which.
// Nothing is written to any tensor before the whole file has been checked, its checksum included.
Metadata read_safetensors(const std::string& path, const std::vector<NamedTensor>&, HostView = {});

}  // namespace headroom::engine
