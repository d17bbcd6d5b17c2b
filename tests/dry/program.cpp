// A program that uses CUDA by its public names, as other people's programs do: it has no idea that it runs dry. dry/library_test.cpp starts it
// under libheadroom_dry.so, once for each word, and reads what it prints (a number a line) and what is recorded. It is built without
// sanitizers, because what it loads is.
#include "cuda_calls.h"

int main(int argc, char** argv) {
  for (const Words* const words : {&device_words, &library_words, &memory_words, &process_words, &rank_words, &stream_words})
    if (const auto word = words->find(argc > 1 ? argv[1] : ""); word != words->end()) {
      word->second();
      return 0;
    }
  return 64;
}
