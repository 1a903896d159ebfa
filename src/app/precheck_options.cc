#include "app/precheck_options.h"

#include <string_view>

#include "json/json.h"

namespace msprobe::app {

std::string ToJson(const PrecheckOptions& o) {
  std::string text;
  json::Writer w(text, 0);
  const auto boolean = [&](std::string_view key, bool value) { w.Key(key).Bool(value); };
  const auto integer = [&](std::string_view key, int64_t value) { w.Key(key).Int(value); };
  const auto string = [&](std::string_view key, std::string_view value) {
    w.Key(key).String(value);
  };
  w.StartObject();
  string("command", o.command);
  boolean("old_face", o.old_face);
  boolean("multi", o.multi);
  string("api_info", o.api_info);
  string("out_path", o.out_path);
  string("csv_path", o.csv_path);
  string("config_path", o.config_path);
  boolean("save_error_data", o.save_error_data);
  boolean("jit_compile", o.jit_compile);
  boolean("filter_api", o.filter_api);
  string("device", o.device);
  w.Key("device_ids").StartArray();
  for (const int64_t id : o.device_ids) w.Int(id);
  w.EndArray();
  integer("workers", o.workers);
  integer("timeout", o.timeout);
  w.Key("memory_limit").Uint(o.memory_limit);
  integer("seed", o.seed);
  string("standard", o.standard == precheck::Standard::kOld ? "old" : "new");
  string("rules", o.rules == precheck::Rules::kBase ? "base" : "default");
  string("small_values",
         o.small_values == precheck::SmallValues::kCorrected ? "corrected" : "original");
  integer("digits", o.format.digits);
  boolean("fail_on_error", o.fail_on_error);
  boolean("fail_on_warning", o.fail_on_warning);
  boolean("fail_on_skip", o.fail_on_skip);
  string("reference", o.reference);
  string("candidate", o.candidate);
  string("baseline", o.baseline);
  string("rows_path", o.rows_path);
  string("reproduce", o.reproduce);
  boolean("ray", o.ray);
  string("ray_address", o.ray_address);
  boolean("english", o.english);
  boolean("retry_skips", o.retry_skips);
  boolean("tf32", o.tf32);
  boolean("quiet", o.quiet);
  boolean("verbose", o.verbose);
  boolean("debug", o.debug);
  w.Key("echo").StartObject();
  for (const auto& [name, value] : o.echo) string(name, value);
  w.EndObject();
  w.EndObject();
  return text;
}

}  // namespace msprobe::app
