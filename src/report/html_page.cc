#include "report/html_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libdeflate.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "json/json.h"
#include "report/html_assets.h"
#include "report/html_text.h"

namespace msprobe::report {
namespace {

std::string_view ToneName(HtmlTone tone) {
  switch (tone) {
    case HtmlTone::kNone:
      return "none";
    case HtmlTone::kGood:
      return "good";
    case HtmlTone::kWarning:
      return "warning";
    case HtmlTone::kBad:
      return "bad";
    case HtmlTone::kMissing:
      return "missing";
  }
  return "none";
}

Result<std::string> Compressed(std::string_view text) {
  constexpr int kLevel = 3;  // speed counts: it is done while somebody waits
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(kLevel);
  if (compressor == nullptr) return Error(ErrorCode::kInternal, "out of memory");
  std::string out(libdeflate_zlib_compress_bound(compressor, text.size()), '\0');
  out.resize(
      libdeflate_zlib_compress(compressor, text.data(), text.size(), out.data(), out.size()));
  libdeflate_free_compressor(compressor);
  return out;
}

// A file without a name in `folder`, so that nothing is left whatever happens.
Result<int> UnnamedFile(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = JoinPath(folder, ".msprobe_XXXXXX");
  fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "open", name);
  unlink(name.c_str());
  return fd;
}

using json::Writer;

void WriteStrings(Writer& w, std::string_view key, const std::vector<std::string>& list) {
  w.Key(key).StartArray();
  for (const std::string& s : list) w.String(s);
  w.EndArray();
}

std::string_view KindName(HtmlColumn::Kind kind) {
  switch (kind) {
    case HtmlColumn::Kind::kText:
      return "text";
    case HtmlColumn::Kind::kCategory:
      return "category";
    case HtmlColumn::Kind::kNumber:
      return "number";
  }
  return "text";
}

void WriteColumns(Writer& w, const std::vector<HtmlColumn>& columns) {
  w.Key("columns").StartArray();
  for (const HtmlColumn& c : columns) {
    w.StartObject();
    w.Key("key").String(c.key);
    w.Key("title").String(c.title);
    w.Key("kind").String(KindName(c.kind));
    w.Key("shown").Bool(c.shown);
    w.Key("width").Int(c.width);
    w.Key("help").String(c.help);
    w.EndObject();
  }
  w.EndArray();
}

void WriteDetails(Writer& w, const std::vector<HtmlDetail>& details) {
  w.Key("details").StartArray();
  for (const HtmlDetail& d : details) {
    w.StartObject();
    w.Key("title").String(d.title);
    w.Key("sides").Bool(d.sides);
    WriteStrings(w, "heads", d.heads);
    w.Key("lines").StartArray();
    for (const HtmlDetail::Line& line : d.lines) {
      w.StartObject();
      w.Key("label").String(line.label);
      WriteStrings(w, "keys", line.keys);
      w.EndObject();
    }
    w.EndArray();
    w.EndObject();
  }
  w.EndArray();
}

void WriteView(Writer& w, const HtmlView& v) {
  w.Key("view").StartObject();
  for (const auto& [key, text] : {std::pair("rows", &v.rows),
                                  {"name", &v.name},
                                  {"verdict", &v.verdict},
                                  {"group", &v.group},
                                  {"tree", &v.tree},
                                  {"series", &v.series},
                                  {"value", &v.value},
                                  {"value_title", &v.value_title},
                                  {"value_help", &v.value_help},
                                  {"cause", &v.cause},
                                  {"cause_begins", &v.cause_begins},
                                  {"cause_follows", &v.cause_follows},
                                  {"message", &v.message},
                                  {"lines", &v.lines},
                                  {"lines_title", &v.lines_title}}) {
    w.Key(key).String(*text);
  }
  w.Key("verdicts").StartArray();
  for (const HtmlVerdict& verdict : v.verdicts) {
    w.StartObject();
    w.Key("word").String(verdict.word);
    w.Key("tone").String(ToneName(verdict.tone));
    w.Key("count").Uint(verdict.count);
    w.EndObject();
  }
  w.EndArray();
  WriteColumns(w, v.columns);
  WriteDetails(w, v.details);
  WriteStrings(w, "commands", v.commands);
  w.EndObject();
}

// Three digits are more than a colour shows; NaN and infinity are one thing here.
void WriteStrip(Writer& w, const std::vector<double>& strip) {
  w.Key("strip").StartArray();
  for (const double v : strip) {
    if (std::isnan(v) || std::isinf(v)) {
      w.String("nan");
    } else if (v < 0) {
      w.Null();
    } else {
      w.Raw(fmt::format("{:.3g}", v));
    }
  }
  w.EndArray();
}

void WriteParts(Writer& w, const std::vector<HtmlPart>& parts) {
  w.Key("parts").StartArray();
  for (const HtmlPart& p : parts) {
    w.StartObject();
    w.Key("label").String(p.label);
    w.Key("problem").String(p.problem);
    w.Key("block").Uint(p.block);
    w.Key("rows").Uint(p.rows);
    w.Key("note").String(p.note);
    w.Key("counts").StartArray();
    for (const uint64_t c : p.counts) w.Uint(c);
    w.EndArray();
    w.Key("first").String(p.first);
    w.Key("first_row").Int(p.first_row);
    w.Key("first_name").String(p.first_name);
    w.Key("begins").StartArray();
    for (const auto& [group, why] : p.begins) {
      w.StartArray();
      w.String(group);
      w.String(why);
      w.EndArray();
    }
    w.EndArray();
    WriteStrip(w, p.strip);
    w.EndObject();
  }
  w.EndArray();
}

std::string PageJson(const HtmlPage& page) {
  std::string out;
  Writer w(out);
  w.StartObject();
  w.Key("title").String(page.title);
  w.Key("answer").String(page.answer);
  w.Key("part_name").String(page.part_name);
  WriteView(w, page.view);
  WriteParts(w, page.parts);
  w.EndObject();
  return out;
}

std::string CommandsHtml(const std::vector<std::string>& commands) {
  std::string out;
  for (const std::string& c : commands) {
    out += "<div class=\"command\"><code>" + HtmlText(c) + "</code></div>\n";
  }
  return out;
}

std::string NotesHtml(const std::vector<HtmlNote>& notes) {
  std::string out;
  for (const HtmlNote& note : notes) {
    out += fmt::format("<details class=\"note\"{}><summary>{}</summary><ul>\n",
                       note.open ? " open" : "", HtmlText(note.title));
    for (const HtmlNote::Line& line : note.lines) {
      out += "<li>" + HtmlText(line.text);
      if (!line.more.empty()) {
        out += "<details class=\"more\"><summary>names</summary><ul class=\"names\">";
        for (const std::string& m : line.more) out += "<li>" + HtmlText(m) + "</li>";
        out += "</ul></details>";
      }
      out += "</li>\n";
    }
    out += "</ul></details>\n";
  }
  return out;
}

std::string TilesHtml(const HtmlPage& page) {
  std::string out = "<div id=\"tiles\">\n";
  uint64_t total = 0;
  for (const HtmlVerdict& v : page.view.verdicts) {
    total += v.count;
    out += fmt::format(
        "<button class=\"tile tone-{}\" data-verdict=\"{}\"><span class=\"icon\" "
        "aria-hidden=\"true\"></span><b>{}</b><span>{}</span></button>\n",
        ToneName(v.tone), HtmlText(v.word), v.count, HtmlText(v.word));
  }
  return out + fmt::format(
                   "<button class=\"tile\" data-verdict=\"\"><b>{}</b><span>all "
                   "{}</span></button>\n</div>\n",
                   total, HtmlText(page.view.rows));
}

std::string FiguresHtml(const HtmlPage& page) {
  std::string out;
  for (const auto& [what, value] : page.figures) {
    out += "<div><dt>" + HtmlText(what) + "</dt><dd>" + HtmlText(value) + "</dd></div>\n";
  }
  if (!out.empty()) out = "<dl class=\"figures\">\n" + out + "</dl>\n";
  if (!page.certainty.empty()) {
    out += "<p class=\"certainty\"><b>How sure:</b> " + HtmlText(page.certainty) + "</p>\n";
  }
  return out;
}

// Everything that can be said without the script; it stays readable where scripts are off.
std::string HeadHtml(const HtmlPage& page) {
  std::string out = fmt::format(
      "<header>\n<div class=\"bar\"><h1>{}</h1><span class=\"spacer\"></span>"
      "<button id=\"keys\" title=\"Keyboard (?)\">Keys</button>"
      "<button id=\"theme\" title=\"Light or dark (d)\">Light / dark</button></div>\n"
      "<section id=\"answer\" class=\"tone-{}\"><p class=\"sentence\"><span class=\"icon\" "
      "aria-hidden=\"true\"></span>{}</p>\n",
      HtmlText(page.title), ToneName(page.tone), HtmlText(page.answer));
  if (!page.explanation.empty()) out += "<p>" + HtmlText(page.explanation) + "</p>\n";
  out += FiguresHtml(page);
  out += CommandsHtml(page.commands) + NotesHtml(page.folds) + "</section>\n" + TilesHtml(page);
  out += "<dl id=\"facts\">\n";
  for (const auto& [key, value] : page.facts) {
    out += "<div><dt>" + HtmlText(key) + "</dt><dd>" + HtmlText(value) + "</dd></div>\n";
  }
  return out + "</dl>\n<div id=\"notes\">\n" + NotesHtml(page.notes) + "</div>\n</header>\n";
}

}  // namespace

bool HtmlAvailable() { return !kHtmlScripts.empty(); }

Result<std::unique_ptr<HtmlReport>> HtmlReport::Create(const std::string& path) {
  if (!HtmlAvailable()) {
    return Error(ErrorCode::kUnsupported, "this build writes no HTML reports")
        .At(path)
        .Hint("build with -DMSPROBE_HTML=ON");
  }
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  std::unique_ptr<HtmlReport> out(new HtmlReport(std::move(file)));
  MSPROBE_ASSIGN(out->spool_, UnnamedFile(DirName(path)));
  return out;
}

HtmlReport::~HtmlReport() {
  if (spool_ >= 0) close(spool_);
}

Result<std::string> HtmlReport::Encode(const HtmlTable& table) {
  MSPROBE_ASSIGN(const std::string packed, Compressed(table.Json()));
  return Base64(packed);
}

Result<uint32_t> HtmlReport::AddTable(const HtmlTable& table) {
  MSPROBE_ASSIGN(const std::string text, Encode(table));
  return AddEncoded(text);
}

Result<uint32_t> HtmlReport::AddEncoded(std::string_view text) {
  const std::lock_guard lock(mutex_);
  Status done = WriteAll(spool_, text);
  if (!done.ok())
    return done.error().path.empty() ? Error(done.error()).At(file_.path()) : done.error();
  sizes_.push_back(text.size());
  return static_cast<uint32_t>(sizes_.size() - 1);
}

Status HtmlReport::CopyTables() {
  constexpr size_t kPiece = 1 << 20;
  std::string piece(kPiece, '\0');
  off_t at = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    MSPROBE_TRY(
        file_.Write(fmt::format("<script type=\"application/octet-stream\" id=\"block-{}\">", i)));
    for (uint64_t left = sizes_[i]; left > 0;) {
      const ssize_t got = pread(spool_, piece.data(), std::min<uint64_t>(left, kPiece), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return ErrnoError(got < 0 ? errno : EIO, "read back the rows of", file_.path());
      MSPROBE_TRY(file_.Write(std::string_view(piece.data(), static_cast<size_t>(got))));
      at += got;
      left -= static_cast<uint64_t>(got);
    }
    MSPROBE_TRY(file_.Write("</script>\n"));
  }
  return {};
}

Status HtmlReport::Finish(const HtmlPage& page) {
  MSPROBE_TRY(file_.Write(
      fmt::format("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"referrer\" content=\"no-referrer\">\n<title>{}</title>\n<style>",
                  kHtmlPolicy, HtmlText(page.title))));
  MSPROBE_TRY(file_.Write(kHtmlStyle));
  MSPROBE_TRY(file_.Write("</style>\n</head>\n<body>\n" + HeadHtml(page)));
  MSPROBE_TRY(file_.Write(
      "<noscript><p class=\"note\">Plot, tree and rows need a browser with scripts on; nothing is "
      "loaded from elsewhere.</p></noscript>\n<main id=\"main\"></main>\n<footer><details><summary>"
      "About this file</summary><p>One file without any connection to the network. It holds these "
      "libraries:</p><pre>"));
  MSPROBE_TRY(file_.Write(HtmlText(kHtmlNotices)));
  MSPROBE_TRY(
      file_.Write("</pre></details></footer>\n<script type=\"application/json\" id=\"page\">"));
  MSPROBE_TRY(file_.Write(ScriptSafe(PageJson(page))));
  MSPROBE_TRY(file_.Write("</script>\n"));
  MSPROBE_TRY(CopyTables());
  MSPROBE_TRY(file_.Write(kHtmlScripts));
  MSPROBE_TRY(file_.Write("</body>\n</html>\n"));
  return file_.Commit();
}

}  // namespace msprobe::report
