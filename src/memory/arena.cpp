#include "memory/arena.h"

#include "base/shape_text.h"
#include "base/text.h"

namespace headroom {

void Arena::refuse(Name name, DType type, Shape shape, std::size_t taken) const {
  throw Error(Code::out_of_memory,
              fmt::format("out of memory: {} [{}] {} needs {}, {} of {} are left", name.full(), shape_text(shape), name_of(type),
                          bytes_exactly(taken), bytes_exactly(capacity_ - top_), bytes_exactly(capacity_)));
}

}  // namespace headroom
