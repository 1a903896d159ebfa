// Reading, naming, matching and judging of small dumps; inputs that are refused; the first bad
// entry.
#include <cmath>

#include "compare/flatten.h"
#include "compare/match.h"
#include "compare/store.h"
#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

const std::string kGolden = std::string(MSPROBE_TEST_DATA) + "/compare/";

Result<Comparison> CompareFiles(const std::string& target, const std::string& golden,
                                Options options = {}) {
  return CompareRank({kGolden + target, kGolden + golden, std::nullopt}, options, NullLog(),
                     NullProgress(), nullptr);
}

TEST(EntryNames, SplitAsTheSpecificationSays) {
  const auto parts = [](std::string_view name) { return ParseEntryName(name); };
  EXPECT_EQ(parts("Torch.add.3.forward").base, "Torch.add");
  EXPECT_EQ(parts("Torch.add.3.forward").call, "3");
  EXPECT_EQ(parts("Torch.add.3.forward").direction, Direction::kForward);
  EXPECT_EQ(parts("Module.fc.Linear.backward.1").base, "Module.fc.Linear");
  EXPECT_EQ(parts("Module.fc.Linear.backward.1").direction, Direction::kBackward);
  EXPECT_EQ(parts("Module.forward.Linear.forward.0").base, "Module.forward.Linear");
  EXPECT_EQ(parts("Module.fc.Linear.parameters_grad").base, "Module.fc.Linear");
  EXPECT_EQ(parts("Module.fc.Linear.parameters_grad.0").call, "0");
  EXPECT_EQ(parts("foo").direction, Direction::kOther);
  EXPECT_EQ(parts("forward").direction, Direction::kOther);
  EXPECT_EQ(parts("Torch.add.x.forward").base, "Torch.add.x.forward");
}

TEST(RowNames, LoseTheLastExtensionOnly) {
  EXPECT_EQ(WithoutExtension("Torch.a.0.forward.input.0.pt"), "Torch.a.0.forward.input.0");
  EXPECT_EQ(WithoutExtension("a.b/c"), "a.b/c");
  EXPECT_EQ(WithoutExtension(".pt"), ".pt");
  EXPECT_EQ(WithoutExtension("plain"), "plain");
}

TEST(TypeFilter, LetsFloatingTypesMeet) {
  const auto may = [](std::string_view t, std::string_view g, RuleSet rules = RuleSet::kBase) {
    return MayCompare(t, g, rules);
  };
  EXPECT_TRUE(may("torch.float32", "torch.bfloat16"));
  EXPECT_TRUE(may("torch.float64", "torch.float16"));
  EXPECT_TRUE(may("torch.int64", "torch.int64"));
  EXPECT_FALSE(may("torch.int32", "torch.int64"));
  EXPECT_FALSE(may("torch.bool", "torch.float32"));
  EXPECT_TRUE(may("Float16", "torch.float32"));  // two frameworks: kinds meet
  EXPECT_FALSE(may("Int64", "torch.float32"));
  // D17: the default rules compare all real numbers, and say so.
  EXPECT_TRUE(may("torch.int32", "torch.int64", RuleSet::kDefault));
  EXPECT_TRUE(may("<class 'int'>", "<class 'float'>", RuleSet::kDefault));
  EXPECT_FALSE(may("torch.complex64", "torch.float32", RuleSet::kDefault));
  EXPECT_FALSE(may("<class 'int'>", "<class 'str'>", RuleSet::kDefault));
}

TEST(CellMapping, FollowsTheStepsOfTheSpecification) {
  const config::NameMap map = {{"fc2.Dense", "fc2.Linear"},
                               {"RowParallelLinear", "TERowParallelLinear"}};
  EXPECT_EQ(MapCell("Cell.fc2.Dense.forward.0", &map), "Module.fc2.Linear.forward.0");
  EXPECT_EQ(MapCell("Module.x.RowParallelLinear.backward.3", &map),
            "Module.x.TERowParallelLinear.backward.3");
  EXPECT_EQ(MapCell("Module.fc2.Dense.parameters_grad.0", &map),
            "Module.fc2.Linear.parameters_grad.0");
  EXPECT_EQ(MapCell("Cell.fc.Dense.forward.0", nullptr), "Module.fc.Dense.forward.0");
  EXPECT_EQ(MapCell("Module.rnn.LSTMCell.forward.0", nullptr), "Module.rnn.LSTMCell.forward.0");
  EXPECT_EQ(MapCell("nothing", &map), "");
}

class Flatten : public DumpTest {
 protected:
  std::vector<std::string> Names(const std::string& data) {
    Write("target", "statistics", data);
    side_ = std::make_unique<Side>();
    EXPECT_TRUE(ReadSide(root_ + "target/dump.json", *side_).ok());
    std::vector<std::string> names;
    for (const Leaf& leaf : side_->leaves) names.emplace_back(leaf.name);
    return names;
  }
  std::unique_ptr<Side> side_;
};

constexpr const char* kInt = R"({"type": "int", "value": 3})";

TEST_F(Flatten, VisitsPartsInReportOrder) {
  const std::string v = kInt;
  EXPECT_EQ(
      Names(R"("M.fc.Linear.forward.0": {"output": [)" + v + R"(], "parameters": {"weight": )" + v +
            R"(}, "input_kwargs": {"k": )" + v + R"(}, "input_args": [)" + v + ", null]}"),
      (std::vector<std::string>{"M.fc.Linear.forward.0.input.0", "M.fc.Linear.forward.0.input.1",
                                "M.fc.Linear.forward.0.input.k",
                                "M.fc.Linear.forward.0.parameters.weight",
                                "M.fc.Linear.forward.0.output.0"}));
  EXPECT_EQ(side_->leaves[3].state, State::kParameters);
  EXPECT_TRUE(side_->leaves[1].is_null);
}

TEST_F(Flatten, NamesNestedValuesByTheirPath) {
  const std::string v = kInt;
  EXPECT_EQ(
      Names(R"("Torch.s.0.forward": {"input_args": [[)" + v + ", [" + v + R"(, {"k": )" + v +
            R"(}]], [], {}], "output": 5}, "x.0.debug": {"a": [)" + v +
            R"(]}, "M.fc.Linear.parameters_grad": {"weight": [)" + v + "]}"),
      (std::vector<std::string>{"Torch.s.0.forward.input.0.0", "Torch.s.0.forward.input.0.1.0",
                                "Torch.s.0.forward.input.0.1.1.k", "Torch.s.0.forward.output",
                                "x.0.debug.a.0", "M.fc.Linear.parameters_grad.weight"}));
  EXPECT_EQ(side_->leaves[3].lack, Leaf::Lack::kMalformed);  // a bare 5 is no record
  EXPECT_EQ(side_->leaves[4].state, State::kDebug);
  EXPECT_EQ(side_->leaves[5].state, State::kParametersGrad);
}

// Checksums of texts: compare.md 25.3 (zlib.crc32 of str(value)).
TEST_F(Flatten, GivesPythonValuesTheirTexts) {
  Names(
      R"("Torch.s.0.forward": {"input_args": [{"type": "int", "value": 3}, {"type": "bool", "value": true}, {"type": "float", "value": 1.5},
        {"type": "torch.Size", "value": [2, 3]}, {"type": "slice", "value": [1, 2, 3]}, {"type": "ellipsis", "value": "..."},
        {"type": "torch.memory_format", "format": "x"}, {"type": "torch.ProcessGroup", "group_ranks": [0, 1]}],
        "input_kwargs": {"src": {"type": "int", "value": 4}}})");
  const auto& l = side_->leaves;
  ASSERT_EQ(l.size(), 9u);
  EXPECT_EQ(l[0].dtype, "<class 'int'>");
  EXPECT_EQ(l[0].md5, "6dd28e9b");
  EXPECT_EQ(l[0].max.as_int(), 3);
  EXPECT_EQ(l[1].dtype, "<class 'bool'>");
  EXPECT_EQ(l[1].md5, "5dcee3b3");
  EXPECT_EQ(l[2].dtype, "<class 'float'>");
  EXPECT_EQ(l[2].md5, "875c9bba");
  EXPECT_EQ(l[3].dtype, "torch.Size");
  EXPECT_EQ(l[3].shape, "[2, 3]");
  EXPECT_EQ(l[3].md5, "3f72ac6e");
  EXPECT_EQ(l[3].max.kind(), CellValue::Kind::kNone);
  EXPECT_EQ(l[4].shape, "(3,)");
  EXPECT_EQ(l[5].max.text(), "...");
  EXPECT_EQ(l[6].dtype, "<class 'NoneType'>");
  EXPECT_EQ(l[6].md5, "00000000");
  EXPECT_EQ(l[7].md5, "[0, 1]");
  EXPECT_EQ(l[8].dtype, "int");
  EXPECT_EQ(l[8].md5, "4");
}

TEST_F(Flatten, ReadsQuotedAndBareNonFiniteStatistics) {
  Names(
      R"("Torch.s.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1],
        "Max": NaN, "Min": "-Infinity",
        "Mean": "nan", "Norm": null}]})");
  const Leaf& l = side_->leaves.at(0);
  EXPECT_TRUE(std::isnan(l.max.as_double()));
  EXPECT_EQ(l.min.as_double(), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(l.mean.as_double()));
  EXPECT_EQ(l.norm.kind(), CellValue::Kind::kNone);
}

// Inputs that cannot be compared: compare.md 24, decisions.md 1 and 28.
TEST(RefusedInputs, SayWhyWithACode) {
  const auto code = [](const std::string& target, const std::string& golden) {
    const auto result =
        CompareFiles("e_inputs/" + target + "/dump.json", "e_inputs/" + golden + "/dump.json");
    EXPECT_FALSE(result.ok()) << target << " " << golden;
    if (result.ok()) return ErrorCode::kInternal;
    EXPECT_FALSE(result.error().message.empty());
    EXPECT_NE(result.error().path.find(".json"), std::string::npos);
    return result.error().code;
  };
  EXPECT_EQ(code("notask", "ok"), ErrorCode::kMalformed);
  EXPECT_EQ(code("nodata", "ok"), ErrorCode::kMalformed);
  EXPECT_EQ(code("datalist", "ok"), ErrorCode::kMalformed);
  EXPECT_EQ(code("list", "ok"), ErrorCode::kMalformed);
  EXPECT_EQ(code("ok", "tensor"), ErrorCode::kMismatch);
  EXPECT_EQ(code("md5", "ok"), ErrorCode::kMismatch);
  EXPECT_EQ(code("strange", "strange"), ErrorCode::kUnsupported);
  EXPECT_EQ(code("structure", "structure"), ErrorCode::kUnsupported);
  EXPECT_EQ(code("empty", "ok"), ErrorCode::kNothingToDo);
  EXPECT_EQ(code("ok", "empty"), ErrorCode::kNothingToDo);
  EXPECT_EQ(code("ok", "gone"), ErrorCode::kNotFound);
}

TEST(StrangeInputs, AreComparedNonetheless) {
  for (const std::string name :
       {"evilname", "evilvalue", "toodeep", "nested", "oddname", "badshape"}) {
    const std::string file = "e_inputs/" + name + "/dump.json";
    const auto result = CompareFiles(file, file);
    ASSERT_TRUE(result.ok()) << name << result.error().ToString();
    EXPECT_GT(result->rows.size(), 0u) << name;
    EXPECT_EQ(result->counts.pass, result->rows.size()) << name;
  }
}

class Matching : public DumpTest {};

TEST_F(Matching, RepeatedEntryCountsOnceWithItsLastContent) {
  const std::string once = Call("Torch.a.0.forward", "", Stats(1, 1, 1, 1));
  const std::string twice = Call("Torch.a.0.forward", "", Stats(9, 9, 9, 9)) + "," +
                            Call("Torch.b.0.forward", "", Stats(2, 2, 2, 2)) + "," + once;
  WriteBoth("statistics", twice, once);
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->rows.size(), 2u);
  EXPECT_EQ(result->rows[0].target->max.as_double(), 1);
  EXPECT_EQ(result->rows[0].verdict, Verdict::kPass);
  EXPECT_EQ(result->rows[1].verdict, Verdict::kUnmatched);
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_NE(result->notes[0].find("1 entries stand in the file twice"), std::string::npos);
}

TEST_F(Matching, RowsOfOneNamePairInOrder) {
  // Two gradients of one parameter share a row name (4.2).
  const auto grads = [](double a, double b) {
    return R"("M.fc.Linear.parameters_grad.0": {"weight": [)" + Stats(a, a, a, a) + "," +
           Stats(b, b, b, b) + "]}";
  };
  WriteBoth("statistics", grads(1, 2), grads(1, 2));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->rows.size(), 2u);
  for (const Row& row : result->rows)
    EXPECT_EQ(row.target->max.as_double(), row.golden->max.as_double());
}

TEST_F(Matching, BackwardCallsPairInOrderOfAppearance) {
  const auto call = [](int n, double v) {
    return Call("Torch.add." + std::to_string(n) + ".backward", Stats(v, v, v, v), "");
  };
  WriteBoth("statistics", call(1, 1) + "," + call(0, 2), call(7, 1) + "," + call(5, 2));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(FindRow(*result, "Torch.add.1.backward.input.0")->golden->name,
            "Torch.add.7.backward.input.0");
  EXPECT_EQ(FindRow(*result, "Torch.add.0.backward.input.0")->golden->name,
            "Torch.add.5.backward.input.0");
}

TEST_F(Matching, DataMappingNamesRowsAsTheyStandInTheFile) {
  const auto call = [](int n, double v) {
    return Call("Torch.add." + std::to_string(n) + ".backward", Stats(v, v, v, v), "");
  };
  WriteBoth("statistics", call(3, 1),
            call(0, 5) + "," + call(3, 1) + "," + Call("Torch.x.0.forward", Stats(2, 2, 2, 2), ""));
  Options options;
  const auto unlisted = [&] {
    options.data_mapping = config::NameMap{{"unknown", "unknown"}};
    return Compare(input(), options);
  }();
  ASSERT_TRUE(unlisted.ok());
  EXPECT_EQ(unlisted->rows[0].golden->name, "Torch.add.3.backward.input.0");
  options.data_mapping =
      config::NameMap{{"Torch.add.3.backward.input.0", "Torch.x.0.forward.input.0"}};
  const auto listed = Compare(input(), options);
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->rows[0].golden->name, "Torch.x.0.forward.input.0");
  EXPECT_EQ(listed->rows.size(), 3u);  // two golden rows are left over
  EXPECT_EQ(listed->counts.unmatched, 2u);
}

TEST(FuzzyMatching, PairsStatisticsAndChecksumsByNameWithoutCallNumber) {
  Options options;
  options.fuzzy = true;
  const auto statistics =
      CompareFiles("s_fuzzy/target/dump.json", "s_fuzzy/golden/dump.json", options);
  ASSERT_TRUE(statistics.ok());
  ASSERT_EQ(statistics->rows.size(), 4u);
  for (const Row& row : statistics->rows) {
    ASSERT_TRUE(row.target && row.golden);
    EXPECT_TRUE(row.fuzzy);
  }
  EXPECT_EQ(statistics->rows[2].golden->name, "Torch.mul.5.forward.input.0");
  const auto sums = CompareFiles("m_fuzzy/target/dump.json", "m_fuzzy/golden/dump.json", options);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->counts.pass, 2u);
  EXPECT_EQ(sums->counts.total, 2u);
}

TEST(FuzzyMatching, KeepsTheOrderOfCallsAndReachesModules) {
  Options options;
  options.fuzzy = true;
  const auto result = CompareFiles("t_fuzzy/target/dump.json", "t_fuzzy/golden/dump.json", options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(FindRow(*result, "Torch.add.1.forward.input.0")->golden, nullptr);
  EXPECT_EQ(FindRow(*result, "Torch.add.2.forward.input.0")->golden->name,
            "Torch.add.5.forward.input.0");
  EXPECT_EQ(FindRow(*result, "Module.fc.Linear.forward.0.output.0")->golden->name,
            "Module.fc.Linear.forward.1.output.0");
}

TEST(GradientNames, NumberedAndUnnumberedMeet) {
  const auto result =
      CompareFiles("t_grad_names/target/dump.json", "t_grad_names/numbered/dump.json");
  ASSERT_TRUE(result.ok());
  for (const Row& row : result->rows) EXPECT_TRUE(row.target && row.golden);
  EXPECT_EQ(FindRow(*result, "Module.fc.Linear.parameters_grad.weight")->golden->name,
            "Module.fc.Linear.parameters_grad.0.weight");
}

TEST(ChecksumKinds, CrcAgainstXorJudgesNothing) {
  const auto result = CompareFiles("m_xor/target/dump.json", "m_xor/crc/dump.json");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->counts.unmatched, result->counts.total);
  for (const Row& row : result->rows) {
    EXPECT_EQ(row.gate, Gate::kChecksumKinds);
    EXPECT_EQ(row.result, OldResult::kNotCompared);
  }
  ASSERT_EQ(result->notes.size(), 1u);
}

TEST(RuleSets, UpstreamKeepsItsOwnLimits) {
  Options options;
  const auto verdict = [&](const char* folder, const char* row) {
    const std::string base = folder;
    const auto result =
        CompareFiles(base + "/target/dump.json", base + "/golden/dump.json", options);
    EXPECT_TRUE(result.ok());
    return FindRow(*result, row)->verdict;
  };
  options.rules = RuleSet::kBase;
  EXPECT_EQ(verdict("t_worked", "Functional.linear.0.forward.output.0"), Verdict::kError);   // D4
  EXPECT_EQ(verdict("t_scalars", "Functional.pad.0.forward.input.device"), Verdict::kPass);  // D18
  options.rules = RuleSet::kUpstream;
  EXPECT_EQ(verdict("t_worked", "Functional.linear.0.forward.output.0"), Verdict::kPass);
  EXPECT_EQ(verdict("t_scalars", "Functional.pad.0.forward.input.device"), Verdict::kError);
}

class Judging : public DumpTest {};

TEST_F(Judging, ZerosOfBothSignsAreNoInfiniteError) {
  WriteBoth("statistics", Call("Torch.a.0.forward", "", Stats(-0.0, 0, 0, 0)),
            Call("Torch.a.0.forward", "", Stats(0.0, 0, 0, 0)));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(StatisticsCells(result->rows[0]).relative[0].kind, StatCell::Kind::kZeroText);
  EXPECT_EQ(result->rows[0].verdict, Verdict::kPass);
}

TEST_F(Judging, LargeIntegersAreSubtractedExactly) {
  const auto leaf = [](const char* value) {
    return std::string(R"({"type": "torch.Tensor", "dtype": "torch.int64", "shape": [], "Max": )") +
           value + R"(, "Min": 0, "Mean": 0, "Norm": 0})";
  };
  WriteBoth("statistics", Call("Torch.a.0.forward", "", leaf("9007199254740993")),
            Call("Torch.a.0.forward", "", leaf("9007199254740992")));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(StatisticsCells(result->rows[0]).diff[0].value, 1.0);
}

TEST_F(Judging, OutputsAreKnownByRecordNotByName) {
  // All rows of a module called `output` are outputs by name; R2s needs inputs to be inputs (D13).
  const auto entry = [](double out) {
    return Call("Module.output.Linear.forward.0", Stats(1, 1, 1, 1), Stats(out, out, out, out));
  };
  WriteBoth("statistics", entry(9), entry(1));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->rows[0].verdict, Verdict::kPass);
  EXPECT_TRUE((result->rows[1].rules == std::initializer_list{Rule::kR2s, Rule::kR7s}));
}

TEST_F(Judging, CountsAddUp) {
  const std::string same = Call("Torch.a.0.forward", Stats(1, 1, 1, 1), Stats(1, 1, 1, 1));
  WriteBoth("statistics", same + "," + Call("Torch.t.0.forward", "", Stats(1, 1, 1, 1)),
            same + "," + Call("Torch.g.0.forward", "", Stats(1, 1, 1, 1)));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  const Counts& c = result->counts;
  EXPECT_EQ(c.total, 4u);
  EXPECT_EQ(c.pass, 2u);
  EXPECT_EQ(c.unmatched, 2u);
  EXPECT_EQ(result->rows.back().gate, Gate::kNoTargetRow);
  EXPECT_FALSE(result->first_bad.has_value());
}

class FirstBadEntry : public DumpTest {};

TEST_F(FirstBadEntry, IsTheFirstWrongOutputWithRightInputs) {
  const auto chain = [](double b, double c) {
    return Call("Torch.a.0.forward", Stats(1, 1, 1, 1), Stats(2, 2, 2, 2)) + "," +
           Call("Torch.b.0.forward", Stats(2, 2, 2, 2), Stats(b, b, b, b)) + "," +
           Call("Torch.c.0.forward", Stats(b, b, b, b), Stats(c, c, c, c));
  };
  WriteBoth("statistics", chain(9, 27), chain(3, 9));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(result->first_bad.has_value());
  EXPECT_EQ(result->first_bad->entry, "Torch.b.0.forward");
  EXPECT_EQ(result->first_bad->row, "Torch.b.0.forward.output.0");
  EXPECT_EQ(result->first_bad->row_index, 3u);
  EXPECT_EQ(result->first_bad->reason,
            "output.0: relative difference of the norms 2, inputs agree exactly");
}

TEST_F(FirstBadEntry, SaysWhenEveryWrongEntryHasWrongInputs) {
  const auto leaf = [](const char* sum) {
    return std::string(
               R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "md5": ")") +
           sum + R"("})";
  };
  WriteBoth("statistics", Call("Torch.a.0.forward", leaf("8ba71454"), leaf("8ba71454")),
            Call("Torch.a.0.forward", leaf("1e2330f6"), leaf("1e2330f6")));
  const auto result = Compare(input());
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->mode, Mode::kMd5);
  ASSERT_TRUE(result->first_bad.has_value());
  EXPECT_EQ(result->first_bad->row, "Torch.a.0.forward.input.0");
  EXPECT_NE(result->first_bad->reason.find("8ba71454 against 1e2330f6"), std::string::npos);
  EXPECT_NE(result->first_bad->reason.find("no wrong output has right inputs"), std::string::npos);
}

TEST(FirstBadOfRealNets, IsTheDisturbedLayer) {
  // Both nets were run with one norm layer of a wrong epsilon.
  const auto tensors = CompareFiles("r_llama_tensor_L0/target/step0/proc1/dump.json",
                                    "r_llama_tensor_L0/golden/step0/proc1/dump.json");
  ASSERT_TRUE(tensors.ok() && tensors->first_bad);
  EXPECT_EQ(tensors->first_bad->entry,
            "Module.layers.0.post_attention_layernorm.RMSNorm.forward.0");
  const auto statistics = CompareFiles("r_llama_stats_mix/target/step0/proc1/dump.json",
                                       "r_llama_stats_mix/golden/step0/proc1/dump.json");
  ASSERT_TRUE(statistics.ok() && statistics->first_bad);
  // The addition of epsilon inside that layer's norm: 0.5 was written where the golden run has
  // 1e-06.
  EXPECT_EQ(statistics->first_bad->entry, "Tensor.__add__.12.forward");
  EXPECT_EQ(statistics->first_bad->row, "Tensor.__add__.12.forward.input.1");
  EXPECT_EQ(statistics->first_bad->reason, "input.1: 0.5 against 1e-06");
}

TEST(Stacks, ComeWithTheFirstRowOfAnEntry) {
  Input input{kGolden + "t_stack/target/dump.json", kGolden + "t_stack/golden/dump.json",
              kGolden + "t_stack/target/stack.json"};
  const auto result = CompareRank(input, {}, NullLog(), NullProgress(), nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->shows_stack);
  size_t with_stack = 0;
  std::string last;
  for (size_t i = 0; i < result->rows.size(); ++i) {
    const Row& row = result->rows[i];
    if (!row.target) continue;
    const std::string& entry = result->EntryName(*row.target, false);
    EXPECT_EQ(row.first_of_entry, entry != last);
    last = entry;
    with_stack += result->Stack(*row.target) != nullptr;
  }
  EXPECT_GT(with_stack, 0u);
}

}  // namespace
}  // namespace msprobe::compare
