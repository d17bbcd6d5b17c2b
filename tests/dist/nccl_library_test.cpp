// Which libnccl is taken, and what is said of one that cannot be: with libraries made here, so that no card is needed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "dist/nccl_abi.h"
#include "tests/dist/processes.h"

namespace headroom::dist {
namespace nccl_library_tests {  // a name: what is used here stays here, where a folder is one source

// A library is opened once in a process, so each question is asked in one of its own.
std::string said_of(const std::string& file) {
  return as_processes(1,
                      [&](int) -> std::string {
                        setenv("HEADROOM_NCCL", file.c_str(), 1);
                        const auto& l = nccl::library();
                        return fmt::format("{}{}{}", l.version, l.CommWindowRegister ? " windows" : "", l.AlltoAll ? " all-to-all" : "");
                      })[0]
      .said;
}
std::string fake(const char* kind) { return said_of(fmt::format("{}/fake_nccl_{}.so", HEADROOM_FAKES_DIR, kind)); }

TEST(NcclLibrary, ALibraryThatCannotBeTakenIsNamedWithWhatIsNeeded) {
  EXPECT_EQ(fake("too_old"), "error: NCCL 2.17.1 is too old: 2.18.1 or newer is needed; name another in HEADROOM_NCCL");
  EXPECT_EQ(fake("mute"), "error: libnccl does not say which version it is; 2.18.1 or newer is needed");
  EXPECT_EQ(fake("lacking"), "error: NCCL 2.28.9 lacks ncclRecv, which every version of it should have; name another in HEADROOM_NCCL");
  const std::string nowhere = said_of("/no/such/libnccl.so");
  EXPECT_TRUE(nowhere.starts_with("error: HEADROOM_NCCL: ")) << nowhere;
  EXPECT_NE(nowhere.find("/no/such/libnccl.so"), std::string::npos) << nowhere;
}

TEST(NcclLibrary, WhatAnOlderOneCallsByTheSameNamesIsNotTaken) {
  EXPECT_EQ(fake("oldest"), "21801");
  EXPECT_EQ(fake("without_windows"), "22803 all-to-all");
  EXPECT_EQ(fake("today"), "22809 windows all-to-all");
}

}  // namespace nccl_library_tests
}  // namespace headroom::dist
