#include "app/init_app.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/config_file.h"
#include "base/file.h"
#include "json/json.h"

namespace msprobe::app {
namespace {

// Only keys that MindStudio Probe knows too, so that one file serves both; "_comment" is ignored by
// either.
constexpr Purpose kPurposes[] = {
    {"first-difference", "two runs differ: find the first call where they part",
     R"json({{
  "_comment": [
    "First difference between two runs. Run the script once on each side (device, version, precision),",
    "with another dump_path each, then: msprobe compare -tp SUSPECT/step0 -gp GOOD/step0 -o report",
    "Keys: docs/config.md. Call seed_all() in the script first, and feed both sides the same batch."
  ],

  "_comment_task": "statistics: max, min, mean and norm of every tensor; small. tensor: the tensors too; exact, large",
  "task": "statistics",
  "_comment_level": "mix: modules and API calls. L0: modules only, quick. L1: API calls only",
  "level": "mix",
  "_comment_dump_path": "another folder for each side",
  "dump_path": {0},
  "_comment_step": "which steps are recorded, from 0; [] means all. The first bad step is enough",
  "step": [0],
  "_comment_rank": "which ranks; [] means all",
  "rank": [],

  "statistics": {{
    "_comment": "scope and list narrow it down to parts of the model; empty: everything",
    "scope": [],
    "list": [],
    "data_mode": ["all"],
    "summary_mode": "statistics"
  }}
}}
)json",
     "run the script on both sides with this file and another dump_path each, then\n"
     "  msprobe compare -tp SUSPECT/step0 -gp GOOD/step0 -o report\n"},
    {"pre-check", "one machine: find operators that are wrong by themselves",
     R"json({{
  "_comment": [
    "Dump for the pre-check: every API call of one step, with its tensors, to be replayed in higher precision:",
    "msprobe acc_check -api_info DUMP/step0/rank/dump.json -o precheck   (--device cpu where there is no accelerator)",
    "The folder is rank0, rank1, ... in distributed runs. Keys: docs/config.md"
  ],

  "_comment_task": "tensor: calls are replayed with the recorded values. statistics: with random ones of the same range",
  "task": "tensor",
  "_comment_level": "the pre-check replays API calls, so L1",
  "level": "L1",
  "dump_path": {0},
  "_comment_step": "one step is enough",
  "step": [0],
  "_comment_rank": "[] means all; in distributed runs [0] is enough, unless one device is under suspicion",
  "rank": [],

  "tensor": {{
    "_comment": "list: only calls whose name contains one of these texts, to save disk; empty: all",
    "scope": [],
    "list": [],
    "data_mode": ["all"],
    "summary_mode": "statistics"
  }}
}}
)json",
     "run the script with this file, then\n"
     "  msprobe acc_check -api_info DUMP/step0/rank*/dump.json -o precheck\n"},
    {"nan-hunt", "NaN or infinity appears: find the call that makes it",
     R"json({{
  "_comment": [
    "Hunt for NaN and infinity: nothing is written until a call has one in its inputs or outputs; then the call,",
    "with its tensors, and a warning that names it. Look at the first entry: msprobe inspect DUMP",
    "To search a whole dump of task statistics instead: msprobe overflow_check -i DUMP/step0 -o report"
  ],

  "task": "overflow_check",
  "_comment_level": "mix names the module too",
  "level": "mix",
  "dump_path": {0},
  "_comment_step": "[]: every step, until overflow_nums calls were found",
  "step": [],
  "rank": [],

  "overflow_check": {{
    "_comment": "how many such calls are recorded before collection ends; -1: never ends",
    "overflow_nums": 3
  }}
}}
)json",
     "run the script with this file; the log names the first calls with NaN or infinity, then\n"
     "  msprobe inspect DUMP/step*/rank*/dump.json\n"},
    {"determinism", "two runs on one machine differ: find the first call that does not repeat",
     R"json({{
  "_comment": [
    "Does the script repeat itself bit for bit? Run it twice with another dump_path each, then:",
    "msprobe compare -tp SECOND/step0 -gp FIRST/step0 -o report; a checksum that differs is an error.",
    "Call seed_all(mode=True) first, or everything differs from the first random number on"
  ],

  "task": "statistics",
  "_comment_level": "mix: modules and API calls",
  "level": "mix",
  "_comment_dump_path": "another folder for each run",
  "dump_path": {0},
  "_comment_step": "step 1 shows what the first update changed",
  "step": [0, 1],
  "rank": [],

  "statistics": {{
    "scope": [],
    "list": [],
    "data_mode": ["all"],
    "_comment_summary_mode": "md5: a checksum of every tensor beside its statistics",
    "summary_mode": "md5"
  }}
}}
)json",
     "run the script twice with this file and another dump_path each, then\n"
     "  msprobe compare -tp SECOND/step0 -gp FIRST/step0 -o report\n"},
};

}  // namespace

std::span<const Purpose> Purposes() { return kPurposes; }

Result<std::string> Init(const InitOptions& options) {
  const auto* purpose = std::find_if(std::begin(kPurposes), std::end(kPurposes),
                                     [&](const Purpose& p) { return p.name == options.purpose; });
  if (purpose == std::end(kPurposes))
    return Error(ErrorCode::kInvalidArgument, "unknown purpose").At(options.purpose);
  if (Status named = CheckConfigFile(options.output, options.force); !named.ok())
    return std::move(named).error();
  if (options.dump_path.empty() || options.dump_path.find('\0') != std::string::npos)
    return Error(ErrorCode::kInvalidArgument, "is not the name of a folder").At("--dump-path");
  std::string folder;
  json::AppendString(folder, options.dump_path);
  const std::string text = fmt::format(fmt::runtime(purpose->text), folder);
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(options.output));
  MSPROBE_TRY(file.Write(text));
  MSPROBE_TRY(file.Commit());
  return fmt::format("{} is for this: {}\nnext: {}", options.output, purpose->summary,
                     purpose->next);
}

}  // namespace msprobe::app
