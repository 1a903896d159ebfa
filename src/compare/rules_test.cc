// The default rule set on small dumps: what rounding explains, what it does not, and which findings
// follow from others. Limits are those of --explain-rules, worked out by hand in the comments.
#include <cmath>

#include "compare/rule_texts.h"
#include "compare/store.h"
#include "compare/test_dump.h"

namespace msprobe::compare {
namespace {

class DefaultSet : public DumpTest {
 protected:
  static Options Default(Face face = Face::kNew) {
    Options options;
    options.face = face;
    options.rules = RuleSet::kDefault;
    options.highlight = face == Face::kOld;
    return options;
  }
  Comparison CompareData(const std::string& target, const std::string& golden,
                         const std::string& task = "statistics", Face face = Face::kNew) {
    WriteBoth(task, target, golden);
    auto result = Compare(input(), Default(face));
    EXPECT_TRUE(result.ok()) << result.error().ToString();
    return result.ok() ? std::move(result).value() : Comparison();
  }
  static const Row& At(const Comparison& c, std::string_view name) {
    const Row* row = FindRow(c, name);
    EXPECT_NE(row, nullptr) << name;
    return *row;
  }
  static bool Has(const Row& row, QRule rule) {
    for (const Finding& f : row.findings) {
      if (f.rule == rule) return true;
    }
    return false;
  }
  static std::string Leaf(const std::string& rest) {
    return R"({"type": "torch.Tensor", )" + rest + "}";
  }
};

// layer_norm, K unknown extent 3: c = 32, u = u_acc = 2^-24: 32 * 2^-24 * (1 + sqrt(3)) = 5.2e-6.
TEST_F(DefaultSet, ResultBeyondItsRoundingIsAnError) {
  const auto call = [](double max) {
    return Call("Functional.layer_norm.0.forward", Stats(1, -1, 0, 2), Stats(max, -1, 0, 2));
  };
  const Comparison off = CompareData(call(1.0001), call(1));
  const Row& row = At(off, "Functional.layer_norm.0.forward.output.0");
  EXPECT_EQ(row.verdict, Verdict::kError);
  EXPECT_TRUE(Has(row, QRule::kQ3));
  ASSERT_TRUE(off.first_bad.has_value());
  EXPECT_EQ(off.first_bad->entry, "Functional.layer_norm.0.forward");
  const Comparison within = CompareData(call(1.000001), call(1));
  EXPECT_EQ(At(within, "Functional.layer_norm.0.forward.output.0").verdict, Verdict::kPass);
  EXPECT_FALSE(within.first_bad.has_value());
}

TEST_F(DefaultSet, WhatComesInWrongIsAnOriginAndWhatFollowsAConsequence) {
  const auto data = [](double first, double second) {
    return Call("Torch.exp.0.forward", Stats(first, -1, 0, 2), Stats(second, -1, 0, 2)) + "," +
           Call("Torch.tanh.0.forward", Stats(second, -1, 0, 2), Stats(second, -1, 0, 3));
  };
  const Comparison c = CompareData(data(1.5, 2.5), data(1, 2));
  const Row& origin = At(c, "Torch.exp.0.forward.input.0");
  EXPECT_TRUE(Has(origin, QRule::kQ4));
  EXPECT_EQ(origin.verdict, Verdict::kError);
  EXPECT_FALSE(origin.consequence);
  for (const std::string_view name :
       {"Torch.exp.0.forward.output.0", "Torch.tanh.0.forward.input.0",
        "Torch.tanh.0.forward.output.0"}) {
    EXPECT_TRUE(At(c, name).consequence) << name;
    EXPECT_EQ(At(c, name).verdict, Verdict::kWarning) << name;
  }
  EXPECT_EQ(c.counts.consequences, 3u);
  ASSERT_TRUE(c.first_bad.has_value());
  EXPECT_EQ(c.first_bad->row, "Torch.exp.0.forward.input.0");
}

TEST_F(DefaultSet, GradientThatIsZeroInExactArithmeticIsJudgedAtTheScaleOfItsSiblings) {
  // 1e-9 against -2e-9 beside a sibling of norm 2: below 2e-5 of it.
  const auto grads = [](double bias) {
    return R"("Module.conv.Conv2d.parameters_grad.0": {"weight": [)" + Stats(1, -1, 0, 2) +
           R"(], "bias": [)" + Stats(bias, -bias, 0, bias) + "]}";
  };
  const Comparison zero = CompareData(grads(1e-9), grads(-2e-9));
  EXPECT_EQ(zero.counts.pass, 2u);
  // A bias gradient of the size of its sibling is none of these.
  const Comparison real = CompareData(grads(1), grads(2));
  EXPECT_EQ(real.counts.error, 1u);
}

TEST_F(DefaultSet, ExactTypesMustBeEqual) {
  const auto ints = [](int max) {
    return Leaf(R"("dtype": "torch.int64", "shape": [2], "Max": )" + std::to_string(max) +
                R"(, "Min": 0, "Mean": null, "Norm": null, "requires_grad": false)");
  };
  const Comparison c = CompareData(Call("Torch.argmax.0.forward", ints(3), ints(5)),
                                   Call("Torch.argmax.0.forward", ints(4), ints(6)));
  EXPECT_EQ(At(c, "Torch.argmax.0.forward.input.0").verdict, Verdict::kWarning);
  EXPECT_EQ(At(c, "Torch.argmax.0.forward.output.0").verdict, Verdict::kWarning);  // follows
  const Comparison out = CompareData(Call("Torch.argmax.0.forward", ints(3), ints(5)),
                                     Call("Torch.argmax.0.forward", ints(3), ints(6)));
  EXPECT_EQ(At(out, "Torch.argmax.0.forward.output.0").verdict, Verdict::kError);
}

// D17: int32 against int64 is compared, with a note.
TEST_F(DefaultSet, WidthsOfTypesAreNotes) {
  const auto leaf = [](const std::string& dtype, const std::string& max) {
    return Leaf(R"("dtype": "torch.)" + dtype + R"(", "shape": [2], "Max": )" + max +
                R"(, "Min": 0, "Mean": 1.0, "Norm": 2.0, "requires_grad": false)");
  };
  const auto one = [&](const std::string& dtype, const std::string& max) {
    return Call("Torch.abs.0.forward", leaf(dtype, max), "");
  };
  const std::string row = "Torch.abs.0.forward.input.0";
  const Comparison same = CompareData(one("int32", "4"), one("int64", "4"));
  EXPECT_EQ(At(same, row).verdict, Verdict::kPass);
  EXPECT_TRUE(Has(At(same, row), QRule::kN2));
  const Comparison other = CompareData(one("int32", "5"), one("int64", "4"));
  EXPECT_EQ(At(other, row).verdict, Verdict::kWarning);
  // bfloat16 keeps 8 bits: 4.01 against 4 is within it, 5 against 4 is not.
  const Comparison coarse = CompareData(one("bfloat16", "4.01"), one("float32", "4"));
  EXPECT_EQ(At(coarse, row).verdict, Verdict::kPass);
  EXPECT_TRUE(Has(At(coarse, row), QRule::kN1));
  EXPECT_EQ(At(CompareData(one("bfloat16", "9"), one("float32", "4")), row).verdict,
            Verdict::kError);
  // Another kind of number stays an error.
  EXPECT_EQ(At(CompareData(one("bool", "true"), one("float32", "1")), row).verdict,
            Verdict::kError);
}

// D20
TEST_F(DefaultSet, ShapesThatDifferByOnesAreAWarning) {
  const auto leaf = [](const std::string& shape) {
    return Leaf(R"("dtype": "torch.float32", "shape": )" + shape +
                R"(, "Max": 1, "Min": 0, "Mean": 1.0, "Norm": 2.0, "requires_grad": false)");
  };
  for (const Face face : {Face::kNew, Face::kOld}) {
    const Comparison ones =
        CompareData(Call("Torch.abs.0.forward", leaf("[1, 3]"), ""),
                    Call("Torch.abs.0.forward", leaf("[3]"), ""), "statistics", face);
    EXPECT_EQ(ones.rows[0].verdict, Verdict::kWarning);
    EXPECT_FALSE(ones.rows[0].dropped_pair);
    EXPECT_TRUE(Has(ones.rows[0], QRule::kQ5));
  }
  const Comparison other = CompareData(Call("Torch.abs.0.forward", leaf("[1, 3]"), ""),
                                       Call("Torch.abs.0.forward", leaf("[4]"), ""));
  EXPECT_EQ(other.rows[0].verdict, Verdict::kError);
}

// decisions.md 26: float16's largest number against infinity.
TEST_F(DefaultSet, SaturationIsAnErrorEitherWay) {
  const auto call = [](const std::string& max) {
    return Call("Torch.exp.0.forward", "",
                Leaf(R"("dtype": "torch.float16", "shape": [2], "Max": )" + max +
                     R"(, "Min": 0, "Mean": 1.0, "Norm": 2.0, "requires_grad": false)"));
  };
  for (const RuleSet rules : {RuleSet::kBase, RuleSet::kDefault}) {
    for (const bool target_infinite : {false, true}) {
      WriteBoth("statistics", call(target_infinite ? "Infinity" : "65504"),
                call(target_infinite ? "65504" : "Infinity"));
      Options options;
      options.rules = rules;
      const auto result = Compare(input(), options);
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(result->rows[0].verdict, Verdict::kError);
    }
  }
}

TEST_F(DefaultSet, NumbersOfNanCount) {
  const auto call = [](int nan) {
    return Call("Torch.exp.0.forward", "",
                Leaf(R"("dtype": "torch.float32", "shape": [9], "Max": NaN, "Min": NaN, "Mean": NaN,
                     "Norm": NaN, "requires_grad": false, "nan": )" +
                     std::to_string(nan) + R"(, "inf": 0)"));
  };
  EXPECT_EQ(CompareData(call(2), call(2)).counts.pass, 1u);
  const Comparison c = CompareData(call(3), call(2));
  EXPECT_TRUE(Has(c.rows[0], QRule::kQ1));
  EXPECT_EQ(c.counts.error, 1u);
}

// D1: what was never recorded is not shown as good.
TEST_F(DefaultSet, NothingRecordedIsUnmatched) {
  const std::vector<std::string> leaves = {
      R"({"type": "torch.Tensor"})",
      R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]})",
      R"({"type": "torch.device"})",
      "5",
  };
  for (const std::string& leaf : leaves) {
    const std::string data = Call("Torch.a.0.forward", leaf, "");
    const Comparison c = CompareData(data, data);
    ASSERT_EQ(c.rows.size(), 1u) << leaf;
    EXPECT_EQ(c.rows[0].verdict, Verdict::kUnmatched) << leaf;
    EXPECT_EQ(c.rows[0].gate, Gate::kNoValues) << leaf;
    EXPECT_FALSE(c.rows[0].unreadable->empty());
  }
  const std::string bare = R"("Torch.a.0.forward": {"input_args": 5}, "Torch.b.0.forward": null)";
  const Comparison c = CompareData(bare, bare);
  EXPECT_EQ(c.counts.unmatched, 2u);
  const std::string absent =
      R"("Torch.a.0.forward": {"input_args": [null, null], "absent": {"input.1": {"code": "unsupported", "reason": "a set"}}})";
  const Comparison a = CompareData(absent, absent);
  EXPECT_EQ(a.rows[0].verdict, Verdict::kPass);  // None
  EXPECT_EQ(a.rows[1].verdict, Verdict::kUnmatched);
  EXPECT_NE(a.rows[1].unreadable->find("unsupported: a set"), std::string::npos);
}

TEST_F(DefaultSet, TensorsWithoutValuesByNatureAgree) {
  const std::string none =
      R"("Max": null, "Min": null, "Mean": null, "Norm": null, "requires_grad": false)";
  for (const std::string& leaf :
       {Leaf(R"("dtype": "torch.float32", "shape": [0, 3], )" + none),
        Leaf(R"("dtype": "torch.float32", "shape": [2, 3], "device": "meta", )" + none)}) {
    for (const std::string task : {"statistics", "tensor"}) {
      const std::string data = Call("Torch.a.0.forward", leaf, "");
      const Comparison c = CompareData(data, data, task);
      EXPECT_EQ(c.rows[0].verdict, Verdict::kPass) << leaf << task;
      EXPECT_EQ(c.rows[0].gate, Gate::kBothEmpty);
    }
  }
}

// D21
TEST_F(DefaultSet, EmptyGoldenTensorHasItsOwnReason) {
  WriteTensor<float>("target", "a", DType::kF32, {2}, {1, 2});
  WriteTensor<float>("golden", "a", DType::kF32, {0}, {});
  const Comparison c = CompareData(
      Call("Torch.x.0.forward", LeafJson("torch.float32", "[2]", "a.pt"), ""),
      Call("Torch.x.0.forward", LeafJson("torch.float32", "[0]", "a.pt"), ""), "tensor");
  EXPECT_EQ(c.rows[0].gate, Gate::kEmptyGolden);
  EXPECT_EQ(c.rows[0].verdict, Verdict::kError);  // R6: the shapes differ
}

TEST_F(DefaultSet, SparseAndMappedTensorsAreComparedByWhatTheirFilesHold) {
  WriteTensor<float>("target", "a", DType::kF32, {3}, {1, 2, 3});
  WriteTensor<float>("golden", "a", DType::kF32, {3}, {1, 2, 4});
  const std::string sparse =
      Leaf(R"("dtype": "torch.float32", "shape": [9, 9], "Max": 3.0, "Min": 1.0, "Mean": 2.0)"
           R"(, "Norm": 3.7, "requires_grad": false, "layout": "torch.sparse_coo", "nnz": 3)"
           R"(, "data_name": "a.pt")");
  const std::string data = Call("Torch.x.0.forward", sparse, "");
  const Comparison c = CompareData(data, data, "tensor");
  EXPECT_EQ(c.rows[0].gate, Gate::kCompared);
  EXPECT_DOUBLE_EQ(c.rows[0].metrics->max_abs, 1.0);
}

TEST_F(DefaultSet, RowsWithoutFilesAreJudgedByStatistics) {
  const auto data = [](double max) {
    return Call("Torch.exp.0.forward", "", Stats(max, 0, 0.5, 1));
  };
  const Comparison same = CompareData(data(1), data(1), "tensor");
  EXPECT_EQ(same.rows[0].verdict, Verdict::kPass);
  EXPECT_TRUE(Has(same.rows[0], QRule::kN6));
  EXPECT_EQ(CompareData(data(2), data(1), "tensor").rows[0].verdict, Verdict::kError);
}

// D7, D14, D15, D16
TEST_F(DefaultSet, OldWordsFollowTheirDocument) {
  const auto nan = Leaf(
      R"("dtype": "torch.float32", "shape": [2, 3], "Max": NaN, "Min": NaN, "Mean": NaN, "Norm": NaN, "requires_grad": false)");
  const Comparison c = CompareData(
      Call("Torch.a.0.forward", nan, Stats(2, -1, 0, 2)) + "," +
          Call("Torch.b.0.forward", Stats(1, 1, 1, 1), ""),
      Call("Torch.a.0.forward", Stats(1, -1, 0, 2), Stats(1, -1, 0, 2)), "statistics", Face::kOld);
  const Row& a = At(c, "Torch.a.0.forward.input.0");
  EXPECT_TRUE(a.red);
  ASSERT_FALSE(a.highlights.empty());
  EXPECT_EQ(*a.highlights.begin(), Highlight::kH1);
  EXPECT_EQ(a.result, OldResult::kWarning);
  EXPECT_EQ(At(c, "Torch.a.0.forward.output.0").result, OldResult::kWarning);  // 2 against 1
  const Row& b = At(c, "Torch.b.0.forward.input.0");
  EXPECT_TRUE(b.grad_consistent);
  EXPECT_FALSE(b.yellow);
  const std::string text = R"({"type": "str", "value": "sum"})";
  const Comparison words = CompareData(Call("Torch.a.0.forward", nan + "," + text, ""),
                                       Call("Torch.a.0.forward", nan + "," + text, ""));
  EXPECT_EQ(StatisticsCells(words.rows[0]).diff[0].kind, StatCell::Kind::kNan);
  EXPECT_EQ(StatisticsCells(words.rows[1]).diff[0].kind, StatCell::Kind::kNotAvailable);
}

// D19
TEST_F(DefaultSet, ChecksumsOfKindsShapesAndNoneAreToldApart) {
  const auto call = [](const std::string& sum, const std::string& shape) {
    return Call("Torch.a.0.forward",
                Leaf(R"("dtype": "torch.float32", "shape": )" + shape +
                     R"(, "requires_grad": false, "md5": )" + sum),
                "");
  };
  const std::string crc = R"("8ba71454")", hash = R"("h64:00112233445566ff")";
  EXPECT_EQ(CompareData(call(crc, "[2]"), call(crc, "[2]")).counts.pass, 1u);
  const Comparison kinds = CompareData(call(crc, "[2]"), call(hash, "[2]"));
  EXPECT_EQ(kinds.rows[0].gate, Gate::kChecksumKinds);
  EXPECT_EQ(kinds.counts.unmatched, 1u);
  EXPECT_EQ(CompareData(call(hash, "[2]"), call(hash, "[2]")).counts.pass, 1u);
  const Comparison shapes = CompareData(call(crc, "[2]"), call(crc, "[3]"));
  EXPECT_EQ(shapes.counts.error, 1u);
  const Comparison none = CompareData(call("null", "[2]"), call("null", "[2]"));
  EXPECT_EQ(none.rows[0].gate, Gate::kNoValues);
  // No elements have no sum, whatever a tool writes for them.
  const Comparison empty =
      CompareData(call("null", "[0]") + "," + Call("Torch.b.0.forward", "", ""), call(hash, "[0]"));
  EXPECT_EQ(empty.rows[0].verdict, Verdict::kPass);
  EXPECT_EQ(none.counts.unmatched, 1u);
}

TEST_F(DefaultSet, ValuesOfEveryKindAreCompared) {
  const auto call = [](const std::string& value) {
    return Call("Torch.a.0.forward", "", R"({"type": )" + value + "}");
  };
  const auto verdict = [&](const std::string& t, const std::string& g) {
    return CompareData(call(t), call(g)).rows.at(0).verdict;
  };
  EXPECT_EQ(verdict(R"("str", "value": "a")", R"("str", "value": "b")"), Verdict::kError);
  EXPECT_EQ(verdict(R"("int", "value": 3)", R"("int", "value": 4)"), Verdict::kError);
  EXPECT_EQ(verdict(R"("int", "value": 3)", R"("float", "value": 3.0)"), Verdict::kPass);
  EXPECT_EQ(verdict(R"("float", "value": 3.0000001)", R"("float", "value": 3.0)"), Verdict::kPass);
  EXPECT_EQ(verdict(R"("slice", "value": [1, 2, 3])", R"("slice", "value": [1, 2, 4])"),
            Verdict::kError);
  EXPECT_EQ(verdict(R"("torch.memory_format", "format": "contiguous_format")",
                    R"("torch.memory_format", "format": "channels_last")"),
            Verdict::kError);
  EXPECT_EQ(verdict(R"("torch.device", "value": "npu:0")", R"("torch.device", "value": "cuda:1")"),
            Verdict::kPass);
}

TEST_F(DefaultSet, KeysThatStandTwiceAreCounted) {
  const std::string v = R"({"type": "int", "value": 1})", w = R"({"type": "int", "value": 2})";
  const std::string data = R"("Torch.a.0.forward": {"input_kwargs": {"k": )" + v + R"(, "k": )" +
                           w + R"(}, "output": [], "output": [)" + v + "]}";
  const Comparison c = CompareData(data, data);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_EQ(At(c, "Torch.a.0.forward.input.k").target->max.as_int(), 2);
  ASSERT_FALSE(c.notes.empty());
  EXPECT_NE(c.notes[0].find("2 keys inside entries stand twice"), std::string::npos);
}

// D27
TEST_F(DefaultSet, NamesOfNoKnownFormAreComparedAndReported) {
  const std::string data = Call("something odd", Stats(1, 1, 1, 1), "") + "," +
                           Call("Torch.a.0.forward", Stats(1, 1, 1, 1), "");
  const Comparison c = CompareData(data, data);
  EXPECT_EQ(c.counts.pass, 2u);
  ASSERT_EQ(c.notes.size(), 2u);  // one per side
  EXPECT_NE(c.notes[0].find("target: 1 entries have names of no known form"), std::string::npos);
  EXPECT_NE(c.notes[0].find("something odd"), std::string::npos);
}

// decisions.md 33
TEST(CanonicalNames, LoseWrappersAndSecondNames) {
  EXPECT_EQ(CanonicalName("Module.module.fc.Linear.forward.0"), "Module.fc.Linear.forward.0");
  EXPECT_EQ(CanonicalName("Module._fsdp_wrapped_module.a._orig_mod.b.C.backward.1"),
            "Module.a.b.C.backward.1");
  EXPECT_EQ(CanonicalName("Module.layers.0.FSDPBlock.forward.0"),
            "Module.layers.0.Block.forward.0");
  EXPECT_EQ(CanonicalName("Module.FSDPA.FSDP.backward.0"), "Module.FSDPA.FSDP.backward.0");
  EXPECT_EQ(CanonicalName("Torch.conv2d.3.forward"), "Functional.conv2d.3.forward");
  EXPECT_EQ(CanonicalName("Torch.spmm.0.backward"), "Torch.mm.0.backward");
  EXPECT_EQ(CanonicalName("Tensor.relu_.0.forward"), "Tensor.relu_.0.forward");
  EXPECT_EQ(CanonicalName("Torch.add.0.forward"), "Torch.add.0.forward");
  EXPECT_EQ(CanonicalName("odd"), "odd");
}

TEST_F(DefaultSet, WrappersAndSecondNamesMeet) {
  const auto data = [](const std::string& module, const std::string& api) {
    return Call(module + ".forward.0", Stats(1, 1, 1, 1), Stats(1, 1, 1, 1)) + "," +
           Call(api + ".0.forward", Stats(1, 1, 1, 1), Stats(1, 1, 1, 1));
  };
  const Comparison c = CompareData(data("Module.module.fc.Linear", "Torch.conv2d"),
                                   data("Module.fc.Linear", "Functional.conv2d"));
  EXPECT_EQ(c.counts.pass, 4u);
  EXPECT_EQ(c.counts.total, 4u);
  ASSERT_EQ(c.notes.size(), 1u);
}

// Another number of calls: pairs are made by order and likeness, and marked.
TEST_F(DefaultSet, ExtraCallsAreAlignedByLikeness) {
  const auto call = [](int n, double v) {
    return Call("Tensor.__add__." + std::to_string(n) + ".forward", Stats(v, -v, 0, v),
                Stats(2 * v, -v, 0, v));
  };
  const Comparison c =
      CompareData(call(0, 50) + "," + call(1, 1) + "," + call(2, 60) + "," + call(3, 7),
                  call(0, 1) + "," + call(1, 7));
  EXPECT_EQ(At(c, "Tensor.__add__.1.forward.input.0").golden->name,
            "Tensor.__add__.0.forward.input.0");
  EXPECT_EQ(At(c, "Tensor.__add__.3.forward.input.0").golden->name,
            "Tensor.__add__.1.forward.input.0");
  EXPECT_TRUE(At(c, "Tensor.__add__.3.forward.input.0").proposed);
  EXPECT_TRUE(Has(At(c, "Tensor.__add__.3.forward.input.0"), QRule::kN5));
  EXPECT_EQ(At(c, "Tensor.__add__.0.forward.input.0").golden, nullptr);
  EXPECT_EQ(c.counts.pass, 4u);
  EXPECT_EQ(c.counts.unmatched, 4u);
}

// Longer than a full table allows: a band around the diagonal still finds the shift.
TEST_F(DefaultSet, LongStretchesAreAlignedInABand) {
  const auto data = [](int first, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) {
      const double v = 1 + (i * 7919 % 1000) / 100.0;
      if (i > 0) out += ',';
      out +=
          Call("Tensor.__add__." + std::to_string(first + i) + ".forward", Stats(v, -v, 0, v), "");
    }
    return out;
  };
  constexpr int kCalls = 3000;
  const std::string extra = Call("Tensor.__add__.0.forward", Stats(77, -77, 0, 77), "");
  const Comparison c = CompareData(extra + "," + data(1, kCalls), data(0, kCalls));
  EXPECT_EQ(c.counts.pass, static_cast<uint64_t>(kCalls));
  EXPECT_EQ(c.counts.unmatched, 1u);
  EXPECT_EQ(At(c, "Tensor.__add__.0.forward.input.0").golden, nullptr);
}

TEST_F(DefaultSet, RenamedModulesMeetWhenClassShapesAndValuesAgree) {
  const auto call = [](const std::string& name, double v) {
    return Call(name + ".forward.0", Stats(v, -v, 0, v), Stats(v, -v, 0, v));
  };
  const Comparison c =
      CompareData(call("Module.layers.0.up.Linear", 1) + "," + call("Module.head.Linear", 5),
                  call("Module.blocks.0.up.Linear", 1) + "," + call("Module.head.Linear", 5));
  EXPECT_EQ(c.counts.pass, 4u);
  EXPECT_EQ(At(c, "Module.layers.0.up.Linear.forward.0.input.0").golden->name,
            "Module.blocks.0.up.Linear.forward.0.input.0");
  const Comparison other =
      CompareData(call("Module.layers.0.up.Linear", 1), call("Module.blocks.0.up.Linear", 9));
  EXPECT_EQ(other.counts.unmatched, 4u);
}

TEST_F(DefaultSet, InitialisersMayOverwriteAnything) {
  const auto call = [](double v) {
    return Call("Tensor.fill_.0.forward", Stats(v, -v, 0, v), Stats(1, 1, 1, 2.4));
  };
  EXPECT_EQ(CompareData(call(1e30), call(3)).counts.pass, 2u);
}

TEST_F(DefaultSet, AFileOfRulesChangesLimitsOfWhatItNames) {
  auto file = std::make_shared<config::RuleFile>();
  file->limits.emplace_back();
  file->limits[0].api = "layer_*";
  file->limits[0].rounding = 1000;  // 1000 * 2^-24 * 2.7 = 1.6e-4
  Options options = Default();
  options.rule_file = file;
  const auto call = [](const std::string& name, double max) {
    return Call(name + ".0.forward", Stats(1, -1, 0, 2), Stats(max, -1, 0, 2));
  };
  WriteBoth("statistics",
            call("Functional.layer_norm", 1.0001) + "," + call("Functional.rms_norm", 1.0001),
            call("Functional.layer_norm", 1) + "," + call("Functional.rms_norm", 1));
  const auto result = Compare(input(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(FindRow(*result, "Functional.layer_norm.0.forward.output.0")->verdict, Verdict::kPass);
  EXPECT_EQ(FindRow(*result, "Functional.rms_norm.0.forward.output.0")->verdict, Verdict::kError);
  file->limits[0] = {};
  file->limits[0].api = "rms_norm";
  file->limits[0].off = {"Q3"};
  WriteBoth("statistics", call("Functional.rms_norm", 1.0001), call("Functional.rms_norm", 1));
  const auto off = Compare(input(), options);
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(FindRow(*off, "Functional.rms_norm.0.forward.output.0")->verdict, Verdict::kPass);
}

TEST(Explanation, NamesEveryRule) {
  const std::string text = ExplainRules();
  for (const Rule r : {Rule::kR1, Rule::kR2t, Rule::kR2s, Rule::kR3, Rule::kR4, Rule::kR5,
                       Rule::kR6, Rule::kR7t, Rule::kR7s, Rule::kR8Error, Rule::kR8Warning}) {
    EXPECT_NE(text.find(RuleText(r)), std::string::npos);
  }
  for (const QRule q : {QRule::kQ1, QRule::kQ2, QRule::kQ3, QRule::kQ4, QRule::kQ5, QRule::kQ6}) {
    EXPECT_NE(text.find(RuleId(q)), std::string::npos);
  }
}

}  // namespace
}  // namespace msprobe::compare
