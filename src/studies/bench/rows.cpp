#include "studies/bench/rows.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace headroom::studies {

namespace {

BesideRow summary_of(const std::string& table, const std::string& peer, std::span<const PeerCell* const> cells) {
  BesideRow r{.table = table, .peer = peer, .mean = {}, .lowest = {}};
  double logarithms = 0;
  for (const PeerCell* c : cells)
    if (const auto ratio = c->ratio()) {
      logarithms += std::log(*ratio);
      r.lowest = std::min(r.lowest.value_or(*ratio), *ratio);
      r.cells += 1;
      r.lost += *ratio < 1;
    }
  if (r.cells > 0) r.mean = std::exp(logarithms / double(r.cells));
  return r;
}

}  // namespace

bool holds_cells(std::span<const RowObject> lines) {
  return !lines.empty() && std::all_of(lines.begin(), lines.end(), [](const RowObject& line) {
    return line.contains("cell") && line.contains("peer") && line.contains("peer_ms");
  });
}

std::vector<PeerCell> cells_of(std::span<const RowObject> lines) {
  std::vector<PeerCell> cells;
  for (const RowObject& line : lines) cells.push_back(read_described<PeerCell>(line, "a cell of a peer"));
  return cells;
}

std::vector<BesideRow> beside_of(const std::string& table, std::span<const PeerCell> cells) {
  std::vector<std::pair<std::string, std::vector<const PeerCell*>>> by_peer;  // in their order
  std::map<std::string, const PeerCell*> fastest;
  for (const PeerCell& c : cells) {
    const auto at = std::find_if(by_peer.begin(), by_peer.end(), [&](const auto& p) { return p.first == c.peer; });
    (at == by_peer.end() ? by_peer.emplace_back(c.peer, std::vector<const PeerCell*>{}) : *at).second.push_back(&c);
    const PeerCell*& first = fastest.try_emplace(c.cell, &c).first->second;
    if (c.peer_ms && (!first->peer_ms || *c.peer_ms < *first->peer_ms)) first = &c;
  }
  std::vector<BesideRow> rows;
  for (const auto& [peer, of_peer] : by_peer) rows.push_back(summary_of(table, peer, of_peer));
  if (by_peer.size() < 2) return rows;
  std::vector<const PeerCell*> best;
  for (const auto& [cell, c] : fastest) best.push_back(c);
  rows.push_back(summary_of(table, best_peer, best));
  return rows;
}

std::vector<LossRow> losses_of(const std::string& table, std::span<const PeerCell> cells) {
  std::vector<LossRow> rows;
  for (const PeerCell& c : cells)
    if (const auto ratio = c.ratio(); ratio && *ratio < 1 && !c.of_ours())
      rows.push_back({table, c.cell, c.peer, c.ours_ms, c.peer_ms, ratio});
  std::stable_sort(rows.begin(), rows.end(), [](const LossRow& a, const LossRow& b) { return *a.ratio < *b.ratio; });
  return rows;
}

}  // namespace headroom::studies
