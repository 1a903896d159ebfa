// The culprit's figures in words, for pages.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "culprit/finding.h"

namespace msprobe::app {

// A kind in plain words: "Wrong result from right inputs".
std::string_view KindTitle(culprit::FindingKind kind);

// Name and value of every figure that the finding has, the telling ones first.
std::vector<std::pair<std::string, std::string>> CulpritFigures(const culprit::Finding& finding);

// How sure the first finding is, in one or two sentences. `report` has findings.
std::string HowSure(const culprit::Report& report);

// The sum of effects on the loss beside its recorded difference; empty when it is not known.
std::string LossText(const culprit::Report& report);

// How many discoveries, at which level, and what the constants were calibrated on.
std::string DiscoveriesText(const culprit::Report& report);

// How collectives were judged; empty: there were none.
std::string CollectivesText(const culprit::Report& report);

// "1 consequence", "12 consequences".
std::string CountOf(uint64_t count, std::string_view one, std::string_view many);

}  // namespace msprobe::app
