// The rules of cuSOLVER's workspaces beside what a card said.
#include "dry/solver_workspace.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace headroom::dry;

struct Asked {
  std::string function, which;
  std::int64_t rows = 0, columns = 0, answer = 0;
};

std::vector<Asked> answers_of_an_h200(const char* name) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR "/bench/results/") + name);
  std::vector<Asked> rows;
  std::string line, word;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::vector<std::string> words;
    for (std::istringstream cells(line); std::getline(cells, word, ',');) words.push_back(word);
    if (words.size() == 5) rows.push_back({words[0], words[3], std::stoll(words[1]), std::stoll(words[2]), std::stoll(words[4])});
  }
  return rows;
}

bool named(const Asked& a, const char* part) { return a.function.find(part) != std::string::npos; }

// How many numbers the rule may be away from the card.
std::int64_t allowed(const Asked& a) {
  if (!named(a, "syev")) return 0;
  return named(a, "Batched") ? eigen_unsure * std::stoll(a.which) : eigen_unsure;
}

std::int64_t by_rule(const Asked& a) {
  const bool any = a.function.front() == 'X', wide = any ? a.function.back() == 'D' : a.function.front() == 'D';
  const std::int64_t number = !any ? 1 : wide ? 8 : 4, aligned = any ? 128 : 0;
  if (named(a, "potrf")) return number * cholesky_workspace(a.which == "upper", a.rows, wide);
  if (named(a, "geqrf")) return aligned + number * qr_workspace(a.columns);
  if (named(a, "orgqr")) return q_workspace(a.rows, a.columns);
  if (named(a, "getrf")) return lu_workspace(a.rows, a.columns, wide);
  if (named(a, "Batched")) return aligned + number * (32 + std::stoll(a.which) * (eigen_workspace(a.rows) - 32));
  return aligned + number * eigen_workspace(a.rows);
}

TEST(DrySolverWorkspace, EveryRuleGivesWhatAnH200Said) {
  const std::vector<Asked> all = answers_of_an_h200("h200_cusolver_workspaces_2026-11-29.csv");
  ASSERT_EQ(all.size(), 1644u);
  for (const Asked& a : all) {
    const std::int64_t number = a.function.front() != 'X' ? 1 : a.function.back() == 'D' ? 8 : 4;
    EXPECT_LE(std::abs(by_rule(a) - a.answer), allowed(a) * number) << a.function << " " << a.rows << " x " << a.columns << " " << a.which;
  }
}

TEST(DrySolverWorkspace, JacobisMethodTakesWhatAnH200Said) {
  const std::vector<Asked> all = answers_of_an_h200("h200_cusolver_jacobi_2026-11-29.csv");
  ASSERT_EQ(all.size(), 172u);
  for (const Asked& a : all) {
    if (a.rows <= most_by_jacobi)
      EXPECT_EQ(jacobi_workspace(a.rows), a.answer) << a.function << " " << a.rows;
    else
      EXPECT_GT(a.answer, jacobi_workspace(a.rows));
  }
}

TEST(DrySolverWorkspace, SingularValuesTakeWhatAnH200Said) {
  const std::vector<Asked> all = answers_of_an_h200("h200_cusolver_singular_2026-11-29.csv");
  ASSERT_EQ(all.size(), 1894u);
  int others = 0;
  for (const Asked& a : all) {
    if (named(a, "gesvdj")) {
      EXPECT_EQ(singular_workspace(a.rows, a.columns, a.which == "whole"), a.answer) << a.rows << " x " << a.columns << " " << a.which;
      continue;
    }
    const std::int64_t more = a.answer - times_q_workspace(a.rows, a.columns, std::stoll(a.which));
    EXPECT_TRUE(more == 0 || more == times_q_unsure) << a.rows << " x " << a.columns << " by " << a.which << ": " << more;
    others += more != 0;
  }
  EXPECT_EQ(others, 1);
}

TEST(DrySolverWorkspace, QOfSizesThatWereNotAskedForIsUnsure) {
  EXPECT_EQ(q_unsure(64), 0);
  EXPECT_GE(q_unsure(127), q_workspace(127, 128) - q_workspace(127, 127) - 128 * 2);
  EXPECT_EQ(q_unsure(128), 0);
}

}  // namespace
