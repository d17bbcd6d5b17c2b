// What happens to a score by its place alone: dropout (dropout.h), or ALiBi's fall (alibi.h), in some kernels both.
#pragma once

namespace headroom::attention {

enum class ByPlace { nothing, dropout, alibi };

}  // namespace headroom::attention
