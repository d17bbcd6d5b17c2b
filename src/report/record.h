// Record — a command's results as data: named values with units, tables, notes and charts, in reading order.
// A study fills it, printers show it (render.h). In JSON a record is an object, a field a key, a table an array of objects,
// a record within a record an object within it; names are JSON keys, titles are for people.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/described.h"

namespace headroom {

// One cell. Nothing (monostate) is a value that was not measured: null in JSON, empty in CSV, "–" for people.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Field {
  std::string name;
  Value value;
  Unit unit = Unit::none;
};

struct Column {
  std::string name;
  Unit unit = Unit::none;
  Show show = Show::always;
  Role role = Role::noted;
};

struct Table {
  std::string name, title;
  std::vector<Column> columns;
  std::vector<std::vector<Value>> rows;      // each as long as columns
  std::vector<std::vector<Table>> within{};  // empty, or for every row the tables that belong to it: JSON arrays in its object

  void add(std::vector<Value> row) { rows.push_back(std::move(row)); }
  void show(std::string_view column, Show how) {  // otherwise than its description says
    for (Column& c : columns)
      if (c.name == column) c.show = how;
  }
};

struct Note {  // a sentence for people; in JSON "notes", unless a table says it already
  std::string text;
  bool in_json = true;
};

// What a page draws and text hints at. Not in CSV and JSON: it repeats tables.
struct Chart {
  enum class Kind : std::uint8_t {
    lines,  // points (x, y)
    areas,  // lines filled and stacked; every series has the same x
    bars,   // points (index into ticks, y), series stacked in each bar
    spans   // a timeline: every series is a row of it, points are (start, end)
  };
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
    std::vector<std::string> names{};  // none, or one for each point, shown on hover
    bool joined = true;                // false: dots
    std::string continues{};           // the series that this one goes on with, forecast instead of measured
    std::vector<double> spread{};      // bars: empty, or one number for each point, up and down; 0: unknown
  };
  struct Mark {  // a line across the chart, with its name
    std::string name;
    double at;
    bool upright = false;  // at an x, else at a y
  };
  std::string title, x_name, y_name;
  Unit unit = Unit::none;
  bool log = true;  // both axes
  std::vector<Series> series;
  Kind kind = Kind::lines;
  Unit x_unit = Unit::none;
  std::vector<std::string> ticks{};
  std::vector<Mark> marks{};
  bool log_x = false;    // the x axis alone
  std::string choice{};  // charts of one title in a row are one frame, in which the reader chooses by this word
};

struct Part;

struct Record {
  std::string name, title;
  std::vector<Part> parts;

  Record& add(std::string field, Value value, Unit unit = Unit::none);
  Record& add(Part part);
};

struct Part {
  std::variant<Field, Table, Note, Chart, Record> is;
};

inline Record& Record::add(std::string field, Value value, Unit unit) {
  parts.push_back({Field{std::move(field), std::move(value), unit}});
  return *this;
}
inline Record& Record::add(Part part) {
  parts.push_back(std::move(part));
  return *this;
}

}  // namespace headroom
