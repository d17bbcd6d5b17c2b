#include "tests/engine/ranks_killed.h"

namespace headroom::engine {
namespace ranks_killed_tests {

TEST(RanksKilled, InAnyCollectiveOfAStepOrOfACheckpointEndTheOthersAndLeaveNothingHalf) { expect_others_to_end(3); }

}  // namespace ranks_killed_tests
}  // namespace headroom::engine
