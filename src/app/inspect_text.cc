// What an inspected dump looks like on a terminal and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "app/inspect_app.h"
#include "base/text.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

std::string Plural(uint64_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string HeadText(const InspectDump& d) {
  std::string out = VisibleText(d.path) + "\n";
  if (!d.problem.empty()) return out + "  cannot be read: " + d.problem + "\n";
  out += fmt::format("  task {}, level {}, framework {}\n", VisibleText(d.task),
                     VisibleText(d.level), VisibleText(d.framework));
  std::string kinds;
  for (const auto& [kind, n] : d.kinds)
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", kind, n);
  out += fmt::format("  {}: {}; {} of tensors and values\n",
                     d.entries == 1 ? "1 entry" : fmt::format("{} entries", d.entries), kinds,
                     Plural(d.leaves, "row"));
  if (d.files > 0) {
    out += fmt::format("  {} named, {} missing\n", Plural(d.files, "tensor file"), d.missing_files);
  }
  if (!d.torn.empty()) {
    out += "  torn: " + d.torn + "\n";
  } else if (!d.complete) {
    out += "  whole; no note of a clean end\n";
  }
  if (d.recovered > 0) out += fmt::format("  {} entries come from the journal\n", d.recovered);
  return out;
}

std::string LeafText(const InspectLeaf& l) {
  std::string out = fmt::format("    {:<14} {} {}", VisibleText(l.name), VisibleText(l.dtype),
                                VisibleText(l.shape));
  for (const auto& [label, text] : {std::pair("max", &l.max),
                                    {"min", &l.min},
                                    {"mean", &l.mean},
                                    {"norm", &l.norm},
                                    {"checksum", &l.checksum}}) {
    if (!text->empty() && *text != "None") out += fmt::format("  {} {}", label, VisibleText(*text));
  }
  return out + "\n";
}

std::string EntryText(const InspectEntry& e) {
  constexpr size_t kMostLeaves = 60;
  std::string out = "  " + VisibleText(e.name) + "\n";
  if (!e.module.empty()) {
    std::string module = e.module;
    std::replace(module.begin(), module.end(), '\x1f', '/');
    out += "    in " + VisibleText(module) + "\n";
  }
  for (size_t i = 0; i < std::min(kMostLeaves, e.leaves.size()); ++i) out += LeafText(e.leaves[i]);
  if (e.leaves.size() > kMostLeaves)
    out += fmt::format("    and {} more\n", e.leaves.size() - kMostLeaves);
  for (std::string line : e.stack) {
    line.resize(line.find_last_not_of('\n') + 1);
    std::replace(line.begin(), line.end(), '\n', ' ');  // place and source text on one line
    out += "    | " + VisibleText(line) + "\n";
  }
  return out;
}

std::string BriefText(const InspectEntry& e) {
  const auto count = [&](std::string_view what) {
    return std::count_if(e.leaves.begin(), e.leaves.end(), [&](const InspectLeaf& l) {
      return l.name.find(what) != std::string::npos;
    });
  };
  const auto inputs = count("input");
  std::string shapes;
  for (const InspectLeaf& l : e.leaves) {
    if (l.name.starts_with("output") && shapes.size() < 40) {
      shapes += fmt::format("{}{} {}", shapes.empty() ? "" : ", ", l.dtype, l.shape);
    }
  }
  return fmt::format("  {:<60} {} in -> {}\n", VisibleText(e.name), inputs, VisibleText(shapes));
}

struct Node {
  std::string label;
  uint64_t entries = 0;
  std::vector<Node> children;  // in order of appearance
};

void AddPath(Node& root, std::string_view path) {
  Node* at = &root;
  ++at->entries;
  while (!path.empty()) {
    const size_t end = std::min(path.find('\x1f'), path.size());
    const std::string label(path.substr(0, end));
    auto it = std::find_if(at->children.begin(), at->children.end(),
                           [&](const auto& c) { return c.label == label; });
    if (it == at->children.end()) it = at->children.insert(it, Node{label, 0, {}});
    at = &*it;
    ++at->entries;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
}

void AppendTree(const Node& node, int depth, uint64_t most, uint64_t& lines, std::string& out) {
  for (const Node& child : node.children) {
    if (most > 0 && lines >= most) return;
    ++lines;
    out += fmt::format("  {:{}}{} ({})\n", "", 2 * depth, VisibleText(child.label), child.entries);
    AppendTree(child, depth + 1, most, lines, out);
  }
}

uint64_t CountNodes(const Node& node) {
  uint64_t out = node.children.size();
  for (const Node& child : node.children) out += CountNodes(child);
  return out;
}

std::string TreeText(const InspectDump& d, uint64_t most) {
  Node root;
  for (const InspectEntry& e : d.matching) AddPath(root, e.module);
  std::string out;
  uint64_t lines = 0;
  AppendTree(root, 0, most, lines, out);
  const uint64_t all = CountNodes(root);
  if (lines < all) out += fmt::format("  and {} more; --most 0 shows all\n", all - lines);
  return out;
}

std::string ListText(const InspectOptions& options, const InspectDump& d) {
  constexpr size_t kInFull = 3;
  const bool full =
      !options.entry.empty() && d.matching.size() <= std::max<uint64_t>(options.most, kInFull);
  const size_t shown =
      options.most == 0 ? d.matching.size() : std::min<size_t>(options.most, d.matching.size());
  std::string out;
  for (size_t i = 0; i < shown; ++i) {
    out +=
        full && d.matching.size() <= kInFull ? EntryText(d.matching[i]) : BriefText(d.matching[i]);
  }
  if (shown < d.matching.size()) {
    out += fmt::format("  and {} more; --most 0 shows all, --entry chooses\n",
                       d.matching.size() - shown);
  }
  return out;
}

std::string DumpLine(const InspectDump& d) {
  const std::string label = d.step.empty() ? d.rank : d.step + " " + d.rank;
  if (!d.problem.empty()) return fmt::format("  {:<14} cannot be read: {}\n", label, d.problem);
  return fmt::format("  {:<14} {} {}, {} entries, {} files{}{}\n", label, VisibleText(d.task),
                     VisibleText(d.level), d.entries, d.files,
                     d.missing_files > 0 ? fmt::format(" ({} missing)", d.missing_files) : "",
                     d.torn.empty() ? "" : ", torn: " + d.torn);
}

void WriteDump(json::Writer& w, const InspectDump& d) {
  w.StartObject();
  for (const auto& [key, text] : {std::pair("path", &d.path),
                                  {"step", &d.step},
                                  {"rank", &d.rank},
                                  {"task", &d.task},
                                  {"level", &d.level},
                                  {"framework", &d.framework},
                                  {"torn", &d.torn},
                                  {"problem", &d.problem}}) {
    w.Key(key).String(*text);
  }
  w.Key("complete").Bool(d.complete);
  w.Key("counts").StartObject();
  w.Key("entries").Uint(d.entries);
  w.Key("rows").Uint(d.leaves);
  w.Key("files").Uint(d.files);
  w.Key("missing_files").Uint(d.missing_files);
  w.Key("recovered").Uint(d.recovered);
  w.EndObject();
  w.Key("entries").StartArray();
  for (const InspectEntry& e : d.matching) {
    w.StartObject();
    w.Key("name").String(e.name);
    w.Key("module").StartArray();
    for (std::string_view rest = e.module; !rest.empty();) {
      const size_t end = std::min(rest.find('\x1f'), rest.size());
      w.String(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    w.EndArray();
    w.Key("rows").StartArray();
    for (const InspectLeaf& l : e.leaves) {
      w.StartObject();
      for (const auto& [key, text] : {std::pair("name", &l.name),
                                      {"dtype", &l.dtype},
                                      {"shape", &l.shape},
                                      {"max", &l.max},
                                      {"min", &l.min},
                                      {"mean", &l.mean},
                                      {"norm", &l.norm},
                                      {"checksum", &l.checksum},
                                      {"file", &l.file}}) {
        if (!text->empty()) w.Key(key).String(*text);
      }
      w.EndObject();
    }
    w.EndArray();
    w.Key("stack").StartArray();
    for (const std::string& line : e.stack) w.String(line);
    w.EndArray();
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
}

}  // namespace

std::string InspectText(const InspectOptions& options, const InspectRun& run) {
  std::string out;
  for (const auto& [key, value] : run.tensor)
    out += fmt::format("  {:<10} {}\n", VisibleText(key), VisibleText(value));
  if (run.dumps.size() == 1) {
    const InspectDump& d = run.dumps.front();
    return out + HeadText(d) + (options.tree ? TreeText(d, options.most) : ListText(options, d));
  }
  const size_t shown =
      options.most == 0 ? run.dumps.size() : std::min<size_t>(options.most, run.dumps.size());
  for (size_t i = 0; i < shown; ++i) out += DumpLine(run.dumps[i]);
  if (shown < run.dumps.size())
    out += fmt::format("  and {} more; --most 0 shows all\n", run.dumps.size() - shown);
  return out;
}

std::string InspectJson(const InspectOptions& options, const InspectRun& run) {
  std::string out;
  json::Writer w(out, 1);
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("path").String(options.path);
  w.Key("dumps").StartArray();
  for (const InspectDump& d : run.dumps) WriteDump(w, d);
  w.EndArray();
  w.Key("tensor").StartObject();
  for (const auto& [key, value] : run.tensor) w.Key(key).String(value);
  w.EndObject();
  w.EndObject();
  return out + "\n";
}

}  // namespace msprobe::app
