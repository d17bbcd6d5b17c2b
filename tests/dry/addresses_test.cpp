// The addresses that a driver gives: a log of an H200's (CUDA 13.0, driver 580; random cudaMalloc, "m,bytes,address", and cudaFree, "f,,address")
// is predicted from its first address, and reservations go into gaps of the space that they come from.
#include "dry/addresses.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using headroom::dry::Addresses;
using headroom::dry::SpaceBelow;
using Address = Addresses::Address;
constexpr std::uint64_t mib = Addresses::mib;

struct Call {
  std::uint64_t bytes;  // 0: given back
  Address at;
};

std::vector<Call> logged() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/tests/data/cuda_addresses_h200.csv");
  std::vector<Call> calls;
  for (std::string line, kind, bytes, at; std::getline(in, line);) {
    std::istringstream words(line);
    std::getline(words, kind, ',');
    std::getline(words, bytes, ',');
    std::getline(words, at, ',');
    calls.push_back({kind == "m" ? std::stoull(bytes) : 0, std::stoull(at, nullptr, 16)});
  }
  return calls;
}

TEST(Addresses, EveryAddressOfALogIsPredicted) {
  const auto calls = logged();
  ASSERT_GT(calls.size(), 1000u);
  constexpr Address far = Address(1) << 46;
  SpaceBelow anywhere(far);
  SpaceBelow space(far + calls[0].at - Addresses(anywhere).take(calls[0].bytes));  // where the log's context lay
  Addresses driver(space);
  std::size_t taken = 0;
  for (const Call& call : calls) {
    if (call.bytes == 0) {
      EXPECT_TRUE(driver.give(call.at));
      continue;
    }
    ASSERT_EQ(driver.take(call.bytes), call.at) << "call " << taken;
    ++taken;
  }
  EXPECT_GT(taken, 700u);
}

TEST(Addresses, AReservationGoesIntoTheHighestGap) {
  SpaceBelow space(Address(1) << 46);
  Addresses one(space);
  const Address high = one.take(96 * mib), middle = one.take(64 * mib), low = one.take(64 * mib);
  EXPECT_EQ(middle, high - 64 * mib);
  EXPECT_EQ(low, middle - 64 * mib);
  EXPECT_TRUE(one.give(high));  // 96 MiB are free there: room for 64, with 32 to spare
  EXPECT_EQ(one.take(64 * mib), high + 32 * mib);
  EXPECT_EQ(one.take(64 * mib), low - 64 * mib);  // the 32 that are left are too few
  EXPECT_EQ(one.reservation(middle + 5), middle);
  EXPECT_EQ(one.reservation(high), 0u);
}

// A program's own mappings and the card's share the process's addresses: what the host gives back makes room for the card.
TEST(Addresses, TheLibraryTakesThemFromTheProcess) {
  void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  const auto take = reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(library, "cudaMalloc"));
  const auto give = reinterpret_cast<int (*)(void*)>(dlsym(library, "cudaFree"));
  ASSERT_TRUE(take && give);
  void *first = nullptr, *second = nullptr, *third = nullptr;
  ASSERT_EQ(take(&first, 24 * mib), 0);
  const auto host_bytes = std::size_t(512 * mib);
  char* const host = static_cast<char*>(mmap(nullptr, host_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(host, MAP_FAILED);
  ASSERT_EQ(take(&second, 64 * mib), 0);
  EXPECT_FALSE(second >= host && second < host + host_bytes);
  ASSERT_EQ(munmap(host, host_bytes), 0);
  ASSERT_EQ(take(&third, 64 * mib), 0);
  EXPECT_TRUE(third >= host && third < host + host_bytes);
  for (void* p : {first, second, third}) EXPECT_EQ(give(p), 0);
}

// A pool keeps its part of the card when its first block is given back.
TEST(Addresses, APoolsPartIsNotGivenToOthers) {
  void* const library = dlopen(HEADROOM_BINARY_DIR "/libheadroom_dry.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  const auto take = reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(library, "cudaMalloc"));
  const auto take_from_pool = reinterpret_cast<int (*)(void**, std::size_t, void*)>(dlsym(library, "cudaMallocAsync"));
  const auto give_to_pool = reinterpret_cast<int (*)(void*, void*)>(dlsym(library, "cudaFreeAsync"));
  ASSERT_TRUE(take && take_from_pool && give_to_pool);
  void *first = nullptr, *second = nullptr, *other = nullptr;
  ASSERT_EQ(take_from_pool(&first, 256, nullptr), 0);
  ASSERT_EQ(take_from_pool(&second, 256, nullptr), 0);
  EXPECT_EQ(give_to_pool(first, nullptr), 0);
  ASSERT_EQ(take(&other, 32 * mib), 0);
  EXPECT_FALSE(other <= second && second < static_cast<char*>(other) + 32 * mib);
}

}  // namespace
