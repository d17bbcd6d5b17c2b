// The rows of headroom bench: its tables, the cells in which a peer took its turn beside us, and what follows from those.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/record.h"
#include "store/described_json.h"
#include "studies/status.h"

namespace headroom::studies {

struct BenchRow {  // a table; its lines are in the field of its name
  std::string table, title, docs, command;
  Status status = Status::ok;
  std::string why{};
  std::int64_t lines = 0;
  double seconds = 0;
  std::string made{};  // for a table from a card's file: when and by which commit
};
void describe(Of<BenchRow> auto& r, auto&& f) {
  using enum Role;
  f(r.table, {.name = "bench"});
  f(r.title, {.name = "title", .role = noted, .show = Show::detail});
  f(r.status, {.name = "status", .role = measured});
  f(r.lines, {.name = "lines", .role = noted});
  f(r.seconds, {.name = "seconds", .role = noted});
  f(r.why, {.name = "why", .role = noted});
  f(r.made, {.name = "made", .role = noted, .show = Show::detail});
  f(r.docs, {.name = "docs", .role = noted, .show = Show::detail});
  f(r.command, {.name = "command", .role = noted});
}

struct PeerCell {  // a line of bench/peers/cells.py
  std::string cell, peer;
  std::optional<double> ours_ms, peer_ms;  // empty: it could not be measured
  std::string why{};
  bool of_ours() const { return peer.starts_with("our "); }  // another way of ours to the same end: no peer
  std::optional<double> ratio() const { return ours_ms && peer_ms && *ours_ms > 0 ? std::optional(*peer_ms / *ours_ms) : std::nullopt; }
};
void describe(Of<PeerCell> auto& c, auto&& f) {
  using enum Role;
  f(c.cell, {.name = "cell"});
  f(c.peer, {.name = "peer"});
  f(c.ours_ms, {.name = "ours_ms", .role = measured, .unit = Unit::ms});
  f(c.peer_ms, {.name = "peer_ms", .role = measured, .unit = Unit::ms});
  f(c.why, {.name = "why", .role = noted});
}

struct BesideRow {  // how many times as long a peer takes: above 1 we are faster
  std::string table, peer;
  std::optional<double> mean, lowest;  // the geometric mean; empty: nothing was measured
  std::int64_t cells = 0, lost = 0;
};
void describe(Of<BesideRow> auto& r, auto&& f) {
  using enum Role;
  f(r.table, {.name = "bench"});
  f(r.peer, {.name = "peer"});
  f(r.mean, {.name = "mean_ratio", .role = noted, .unit = Unit::ratio, .show = Show::bar});
  f(r.lowest, {.name = "lowest_ratio", .role = noted, .unit = Unit::ratio});
  f(r.cells, {.name = "cells", .role = noted});
  f(r.lost, {.name = "lost", .role = noted});
}

struct LossRow {  // a cell in which a peer is faster
  std::string table, cell, peer;
  std::optional<double> ours_ms, peer_ms, ratio;
};
void describe(Of<LossRow> auto& r, auto&& f) {
  using enum Role;
  f(r.table, {.name = "bench"});
  f(r.cell, {.name = "cell"});
  f(r.peer, {.name = "peer"});
  f(r.ours_ms, {.name = "ours_ms", .role = noted, .unit = Unit::ms});
  f(r.peer_ms, {.name = "peer_ms", .role = noted, .unit = Unit::ms});
  f(r.ratio, {.name = "ratio", .role = noted, .unit = Unit::ratio});
}

constexpr const char* best_peer = "the fastest of them";

bool holds_cells(std::span<const RowObject> lines);  // whether they are a peer's turns
std::vector<PeerCell> cells_of(std::span<const RowObject> lines);
// A row for each peer, and where there are several one for the fastest of each cell.
std::vector<BesideRow> beside_of(const std::string& table, std::span<const PeerCell>);
std::vector<LossRow> losses_of(const std::string& table, std::span<const PeerCell>);  // the largest first

}  // namespace headroom::studies
