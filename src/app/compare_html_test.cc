#include <gtest/gtest.h>

#include <cmath>

#include "app/compare_html_rows.h"

namespace msprobe::app {
namespace {

using compare::CellValue;
using compare::Leaf;
using compare::Mode;
using compare::Row;

CellValue Number(double d) { return CellValue::Double(d); }

Leaf Statistics(double max, double min, double mean, double norm) {
  Leaf out;
  out.max = Number(max);
  out.min = Number(min);
  out.mean = Number(mean);
  out.norm = Number(norm);
  return out;
}

double ErrorOf(const Leaf& t, const Leaf& g) {
  Row row;
  row.target = &t;
  row.golden = &g;
  return RelativeError(row, Mode::kStatistics);
}

TEST(HtmlRows, RelativeErrorOfStatistics) {
  const Leaf golden = Statistics(2, -4, 0.5, 10);
  EXPECT_EQ(ErrorOf(golden, golden), 0);
  EXPECT_DOUBLE_EQ(ErrorOf(Statistics(3, -4, 0.5, 10), golden), 0.25);   // 1 of |-4|
  EXPECT_DOUBLE_EQ(ErrorOf(Statistics(2, -4, 2.5, 10), golden), 0.5);    // the mean as well
  EXPECT_DOUBLE_EQ(ErrorOf(Statistics(2.1, -4, 0.5, 13), golden), 0.3);  // 3 of the norm
  EXPECT_TRUE(std::isinf(ErrorOf(Statistics(NAN, -4, 0.5, 10), golden)));
  EXPECT_TRUE(std::isinf(ErrorOf(Statistics(1, 0, 0, 1), Statistics(0, 0, 0, 0))));
  EXPECT_EQ(ErrorOf(Statistics(NAN, NAN, NAN, NAN), Statistics(NAN, NAN, NAN, NAN)), 0);
  EXPECT_TRUE(std::isnan(ErrorOf(Leaf(), golden)));  // nothing recorded
  Row lone;
  lone.golden = &golden;
  EXPECT_TRUE(std::isnan(RelativeError(lone, Mode::kStatistics)));
}

TEST(HtmlRows, TreeOfModulesAndTheirCalls) {
  const ModuleTree tree(
      {"Module.layers.2.norm.LayerNorm.forward.0", "Module.layers.2.Block.forward.0",
       "Functional.layer_norm.3.forward"},
      {{"Functional.layer_norm.3.forward", "Module.layers.2.norm.LayerNorm.forward.0"},
       {"Torch.add.0.forward", "Torch.mul.0.forward"},
       {"Torch.mul.0.forward", "Torch.add.0.forward"}});
  EXPECT_EQ(tree.PathOf("Module.layers.2.norm.LayerNorm.backward.0"),
            "layers\x1f"
            "2 (Block)\x1fnorm (LayerNorm)");
  EXPECT_EQ(tree.PathOf("Functional.layer_norm.3.forward"),
            "layers\x1f"
            "2 (Block)\x1fnorm (LayerNorm)\x1f"
            "Functional.layer_norm");
  EXPECT_EQ(tree.PathOf("Tensor.mean.0.forward"), "Tensor.mean");
  EXPECT_EQ(tree.PathOf("Torch.add.0.forward"), "Torch.add");  // parents in a ring
}

}  // namespace
}  // namespace msprobe::app
