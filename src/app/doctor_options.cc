#include "app/doctor_options.h"

#include <string_view>

#include "app/build_facts.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

void WriteBuild(json::Writer& w) {
  const BuildFacts facts = GetBuildFacts();
  const auto words = [&](std::string_view key, const std::vector<std::string>& list) {
    w.Key(key).StartArray();
    for (const std::string& s : list) w.String(s);
    w.EndArray();
  };
  w.Key("build").StartObject();
  w.Key("version").String(facts.version);
  w.Key("commit").String(facts.commit);
  w.Key("compiler").String(facts.compiler);
  w.Key("build_type").String(facts.build_type);
  words("vectors", facts.compiled);
  words("usable", facts.usable);
  w.EndObject();
}

}  // namespace

std::string ToJson(const DoctorOptions& options) {
  std::string text;
  json::Writer w(text, 0);
  w.StartObject();
  w.Key("config").String(options.config_path);
  w.Key("script").String(options.script);
  w.Key("script_args").StartArray();
  for (const std::string& a : options.script_args) w.String(a);
  w.EndArray();
  w.Key("model").String(options.model);
  w.Key("steps").Int(options.steps);
  w.Key("ranks").Int(options.ranks);
  w.Key("timeout").Int(options.timeout);
  w.Key("json").Bool(options.json);
  w.Key("quiet").Bool(options.quiet);
  w.Key("debug").Bool(options.debug);
  WriteBuild(w);
  w.EndObject();
  return text;
}

}  // namespace msprobe::app
