// Which sanitizer this build has. GCC defines a macro, clang has a feature.
#pragma once

#ifdef __has_feature
#define HEADROOM_HAS_FEATURE(name) __has_feature(name)
#else
#define HEADROOM_HAS_FEATURE(name) 0
#endif

namespace headroom {

#if defined(__SANITIZE_ADDRESS__) || HEADROOM_HAS_FEATURE(address_sanitizer)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || HEADROOM_HAS_FEATURE(thread_sanitizer)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif

}  // namespace headroom

#undef HEADROOM_HAS_FEATURE
