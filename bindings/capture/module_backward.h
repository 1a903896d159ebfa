// Gradients of a module call, read from the autograd graph without adding to it: pre-hooks on the
// nodes that made the outputs, post-hooks on the boundary nodes, from which gradients leave towards
// the inputs (capture.md 5, 6).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bindings/capture/py.h"
#include "collect/collector.h"

namespace msprobe::capture {

// A gradient edge: an autograd node and the number of its output. Holds the node so that its
// address stays its own.
struct Edge {
  Ref node;
  uint32_t number = 0;
};

// An edge of the graph that leaves the nodes of a finished call: `from`'s input `slot` goes to
// `to`.
struct Exit {
  Ref from;
  uint32_t slot = 0;
  Edge to;
};

// Whose gradients: the call of a module, or of an API (backward_layout "arguments").
struct GradientOwner {
  uint32_t id = 0;  // of the collector
  int64_t number = 0;
  bool api = false;
};

// Where gradients stand in the record of an API: as its arguments do, with null for what has none.
struct ArgumentPlan {
  enum class Step : uint8_t { kGradient, kNull, kOpenList, kCloseList };
  std::vector<Step> steps;  // kGradient takes the next input of the region
};

// What is known of the graph while a module's forward runs, and what its parent needs of it
// afterwards.
struct BackwardRegion {
  std::vector<Edge> inputs;     // of the tensors among the arguments that require grad, in order
  uint64_t first_sequence = 0;  // nodes made inside have at least this number
  bool keeps_leaves = false;    // an enclosing call waits for a leaf tensor's gradient
  // Regions of finished children by the nodes that made their outputs.
  std::unordered_map<PyObject*, std::shared_ptr<std::vector<Exit>>> children;
  std::vector<Ref> child_nodes;  // the keys of `children`, held
  ArgumentPlan plan;             // of an API
};

// Before the forward: nullptr when gradients are off. `parent` may be null.
std::unique_ptr<BackwardRegion> BeginRegion(PyObject* args, const BackwardRegion* parent);

// The same for an API: positional arguments, then the values of the keywords.
std::unique_ptr<BackwardRegion> BeginApiRegion(PyObject* args, PyObject* kwargs);

// After the forward: finds the boundary, places the hooks, and hands the region's exits to the
// parent.
void EndRegion(std::unique_ptr<BackwardRegion> region, PyObject* output, const GradientOwner& owner,
               BackwardRegion* parent);

// Writes the records that have begun and wait for gradients that will not come.
void FlushModuleGradients();

bool InitModuleBackward();

}  // namespace msprobe::capture
