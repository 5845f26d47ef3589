#include "backend/pictures/draw_graph.h"

#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "backend/pictures/draw_modules.h"
#include "backend/pictures/draw_operators.h"

namespace aten_recompute {
namespace {

using namespace drawing;

constexpr const char* kSavedColor = "#9ecae1";
constexpr const char* kSavedLine = "#2171b5";
constexpr const char* kDroppedColor = "#fee391";
constexpr const char* kRecomputedColor = "#fd8d3c";
constexpr const char* kBackwardColor = "#d9d9d9";
constexpr const char* kPlainColor = "#ffffff";

// What is drawn as one node: an operator, or all operators of a collapsed module in one part.
struct Box {
  size_t region = 0;
  bool in_backward = false;
  std::string path;   // of the cluster that it is in
  std::string title;  // of a collapsed module; "" for an operator
  std::vector<int> ops;
};

class Picture {
 public:
  Picture(Operators operators, DrawnPart part, std::string layer)
      : operators_(std::move(operators)),
        part_(part),
        layer_(std::move(layer)),
        root_(choose_expanded(operators_, layer_)) {
    make_boxes();
    has_stripes_ = std::any_of(boxes_.begin(), boxes_.end(),
                               [](const auto& box) { return !box.title.empty(); });
    if (!layer_.empty())
      keep_neighbors_of_layer();
  }

  DotGraph draw(const std::vector<std::string>& region_names, const std::string& title) {
    DotGraph graph(
        {{"label", title},
         {"labelloc", "t"},
         {"fontname", "Helvetica"},
         {"fontsize", "16"},
         {"rankdir", "TB"},
         {"ranksep", "0.35"},
         {"nodesep", distance_between_neighbors()},
         {"newrank", "true"},
         {"compound", "true"}},
        {{"shape", "box"},
         {"style", "filled"},
         {"fillcolor", kPlainColor},
         {"fontname", "Helvetica"},
         {"fontsize", "10"},
         {"height", "0.3"},
         {"margin", "0.08,0.04"}},
        {{"fontname", "Helvetica"}, {"fontsize", "8"}, {"arrowsize", "0.6"}, {"color", "#636363"}});
    const int legend = add_legend(graph);
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (is_left_out(b))
        continue;
      const auto& box = boxes_[b];
      nodes_[b] = graph.add_node(cluster_of(graph, box, region_names), attributes_of(box));
    }
    // The legend stands above.
    if (!nodes_.empty())
      graph.add_edge(legend, nodes_.begin()->second, {{"style", "invis"}});
    add_edges(graph);
    return graph;
  }

 private:
  void make_boxes() {
    std::map<std::tuple<size_t, bool, std::string>, size_t> collapsed;
    std::map<std::tuple<size_t, bool, std::string>, size_t> num_own;
    for (const auto& op : operators_.ops) {
      if (op.role == Role::kOperator)
        ++num_own[{op.region, op.in_backward, op.path}];
    }
    std::map<std::tuple<size_t, bool, std::string>, size_t> seen;
    for (size_t i = 0; i < operators_.ops.size(); ++i) {
      const auto& op = operators_.ops[i];
      auto [cluster, title] = root_.place_of(op.path);
      const std::tuple<size_t, bool, std::string> own{op.region, op.in_backward, op.path};
      const bool is_many = title.empty() && op.role == Role::kOperator &&
                           num_own[own] > kMostOwnOperators &&
                           (layer_.empty() || cluster != layer_);
      if (is_many && root_.num_operators > kMostOperators) {
        const auto length = std::max(kMostOwnOperators, num_own[own] / kMostStretches + 1);
        const auto first = seen[own]++ / length * length;
        title = "operators " + std::to_string(first + 1) + " to " +
                std::to_string(std::min(first + length, num_own[own])) +
                (cluster.empty() ? "" : " of " + cluster);
      }
      size_t box = boxes_.size();
      if (!title.empty())
        box = collapsed.emplace(std::tuple{op.region, op.in_backward, title}, box).first->second;
      if (box == boxes_.size())
        boxes_.push_back({op.region, op.in_backward, cluster, title, {}});
      boxes_[box].ops.push_back(static_cast<int>(i));
      box_of_.push_back(box);
    }
  }

  bool is_in_layer(const Box& box) const {
    const auto inside = [&](const std::string& path) {
      return path == layer_ || path.rfind(layer_ + ".", 0) == 0;
    };
    return inside(box.path) || inside(box.title);
  }

  void keep_neighbors_of_layer() {
    left_out_.assign(boxes_.size(), true);
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (is_in_layer(boxes_[b]))
        left_out_[b] = false;
    }
    const auto in_layer = left_out_;
    for (const auto& flow : operators_.flows) {
      const auto from = box_of_[flow.from];
      const auto to = box_of_[flow.to];
      if (!in_layer[from])
        left_out_[to] = false;
      if (!in_layer[to])
        left_out_[from] = false;
    }
  }

  bool is_left_out(size_t box) const { return !left_out_.empty() && left_out_[box]; }

  // Returns the cluster of a region, of one of its parts, and of a module in it.
  int cluster_of(DotGraph& graph, const Box& box, const std::vector<std::string>& region_names) {
    int parent = DotGraph::kNoCluster;
    if (region_names.size() > 1) {
      parent = find_cluster(graph, {box.region, false, "", ""}, parent, region_names[box.region],
                            "#f7f7f7");
    }
    std::string path;
    for (const auto& atom : atoms_of(box.path)) {
      path = path.empty() ? atom : path + "." + atom;
      parent = find_cluster(graph, {box.region, box.in_backward, path, "m"}, parent,
                            path + part_name(box), "");
    }
    return parent;
  }

  // Returns what tells the box of a module in this part from that in the other one.
  const char* part_name(const Box& box) const {
    if (part_ == DrawnPart::kJoint && box.in_backward)
      return ", backward";
    return part_ == DrawnPart::kBackward && !box.in_backward ? ", kept" : "";
  }

  using ClusterKey = std::tuple<size_t, bool, std::string, std::string>;
  int find_cluster(DotGraph& graph, const ClusterKey& key, int parent, const std::string& label,
                   const std::string& fill) {
    const auto found = clusters_.find(key);
    if (found != clusters_.end())
      return found->second;
    DotGraph::Attributes attributes{{"label", label},
                                    {"labeljust", "l"},
                                    {"fontsize", "10"},
                                    {"color", "#bdbdbd"},
                                    {"style", "rounded"}};
    if (!fill.empty()) {
      attributes["style"] = "filled";
      attributes["fillcolor"] = fill;
    }
    return clusters_[key] = graph.add_cluster(parent, std::move(attributes));
  }

  static const char* color_of(State state, bool in_backward) {
    switch (state) {
      case State::kSaved:
        return kSavedColor;
      case State::kDropped:
        return kDroppedColor;
      case State::kRecomputed:
        return kRecomputedColor;
      case State::kPlain:
        break;
    }
    return in_backward ? kBackwardColor : kPlainColor;
  }

  DotGraph::Attributes attributes_of(const Box& box) const {
    if (!box.title.empty())
      return attributes_of_module(box);
    const auto& op = operators_.ops[box.ops[0]];
    const auto& memory = operators_.memory[box.ops[0]];
    if (op.role == Role::kOperator) {
      return {{"label", op.label},
              {"fillcolor", color_of(op.state, op.in_backward)},
              {"tooltip", (op.path.empty() ? "" : op.path + ": ") + op.label +
                              (memory.bytes > 0 ? " (" + readable_bytes(memory.bytes) + ")" : "")}};
    }
    return {{"label", op.label}, {"shape", "ellipse"}};
  }

  DotGraph::Attributes attributes_of_module(const Box& box) const {
    struct Amount {
      std::set<int32_t> storages;
      int64_t bytes = 0;
      size_t count = 0;
    };
    std::map<State, Amount> amounts;
    for (auto i : box.ops) {
      auto& amount = amounts[operators_.ops[i].state];
      ++amount.count;
      const auto& memory = operators_.memory[i];
      // Views share their storage, which counts once.
      bool is_new = memory.storages.empty();
      for (auto storage : memory.storages)
        is_new = amount.storages.insert(storage).second || is_new;
      amount.bytes += is_new ? memory.bytes : 0;
    }
    const bool lists_kept_only = part_ == DrawnPart::kBackward && !box.in_backward;
    auto label = box.title + part_name(box) + "\\n" + std::to_string(box.ops.size()) +
                 (lists_kept_only ? " value" : " operator") + (box.ops.size() == 1 ? "" : "s");
    if (const auto again = amounts[State::kRecomputed].count; again > 0)
      label += ", " + std::to_string(again) + " again";
    const auto tell = [&](State state, const char* word) {
      if (amounts[state].bytes > 0)
        label += std::string("\\n") + readable_bytes(amounts[state].bytes) + " " + word;
    };
    tell(State::kSaved, "kept");
    tell(State::kDropped, "dropped");
    DotGraph::Attributes attributes{{"label", label}, {"penwidth", "1.5"}, {"tooltip", box.title}};
    paint(attributes, box, [&](State state) {
      const auto& amount = amounts[state];
      return box.in_backward || has_no_bytes() ? static_cast<double>(amount.count)
                                               : static_cast<double>(amount.bytes);
    });
    return attributes;
  }

  bool has_no_bytes() const {
    return std::none_of(operators_.memory.begin(), operators_.memory.end(),
                        [](const auto& memory) { return memory.bytes > 0; });
  }

  // Paints a box in stripes, by how much of it is in each state.
  static void paint(DotGraph::Attributes& attributes, const Box& box,
                    const std::function<double(State)>& amount_of) {
    const auto states = box.in_backward
                            ? std::vector{State::kPlain, State::kRecomputed}
                            : std::vector{State::kSaved, State::kDropped, State::kPlain};
    double total = 0.0;
    for (auto state : states)
      total += amount_of(state);
    std::vector<std::pair<State, double>> shares;
    for (auto state : states) {
      if (total > 0.0 && amount_of(state) / total >= 0.01)
        shares.emplace_back(state, amount_of(state) / total);
    }
    if (shares.size() <= 1) {
      attributes["fillcolor"] =
          color_of(shares.empty() ? State::kPlain : shares[0].first, box.in_backward);
      return;
    }
    std::ostringstream colors;
    for (size_t i = 0; i < shares.size(); ++i) {
      colors << (i == 0 ? "" : ":") << color_of(shares[i].first, box.in_backward);
      if (i + 1 < shares.size())
        colors << ";" << shares[i].second;
    }
    attributes["style"] = "striped";
    attributes["fillcolor"] = colors.str();
  }

  // What flows between two boxes.
  struct Bundle {
    std::set<int32_t> storages;
    std::set<std::string> values;
    int64_t bytes = 0;
    bool is_saved = false;
    bool is_outside = false;
  };

  void add_edges(DotGraph& graph) {
    std::map<std::pair<size_t, size_t>, Bundle> bundles;
    for (const auto& flow : operators_.flows) {
      const auto from = box_of_[flow.from];
      const auto to = box_of_[flow.to];
      if (from == to || is_left_out(from) || is_left_out(to))
        continue;
      auto& bundle = bundles[{from, to}];
      bundle.is_saved = bundle.is_saved || flow.is_saved;
      bundle.is_outside = bundle.is_outside || flow.is_outside;
      bool is_new = bundle.values.insert(flow.value).second && flow.memory.storages.empty();
      for (auto storage : flow.memory.storages)
        is_new = bundle.storages.insert(storage).second || is_new;
      bundle.bytes += is_new ? flow.memory.bytes : 0;
    }
    for (const auto& [boundary, bundle] : bundles)
      add_edge(graph, boundary.first, boundary.second, bundle);
  }

  void add_edge(DotGraph& graph, size_t from, size_t to, const Bundle& bundle) const {
    DotGraph::Attributes attributes;
    const bool from_backward = boxes_[from].in_backward;
    const bool to_backward = boxes_[to].in_backward;
    const bool is_beside = part_ == DrawnPart::kJoint && from_backward != to_backward;
    const auto count = std::to_string(bundle.values.size()) + " values";
    const auto bytes = bundle.bytes > 0 ? readable_bytes(bundle.bytes) : "";
    const bool is_one = bundle.values.size() == 1;
    const auto both = is_one ? bytes : bytes.empty() ? count : count + ", " + bytes;
    if (!both.empty()) {
      // graphviz gives labels of edges a rank of their own, and there is none between neighbors,
      // and little space.
      attributes[is_beside ? "xlabel" : "label"] = is_beside && !bytes.empty() ? bytes : both;
      attributes["tooltip"] = both;
    }
    if (bundle.is_saved) {
      attributes["color"] = kSavedLine;
      attributes["fontcolor"] = kSavedLine;
      attributes["penwidth"] = "1.6";
    }
    if (bundle.is_outside)
      attributes["style"] = "dashed";
    if (is_beside) {
      // What belongs to a box of the forward stands beside it; other edges move nothing.
      const bool is_of_one = boxes_[from].title == boxes_[to].title;
      attributes["minlen"] = "0";
      attributes["weight"] = is_of_one && !boxes_[from].title.empty() ? "4" : "0";
    } else if (order_of(from) > order_of(to)) {
      // Boxes that stand for several operators may need each other; only one direction of the edges
      // may decide what stands above what.
      attributes["constraint"] = "false";
    } else if (part_ == DrawnPart::kJoint && from_backward) {
      // The backward stands beside the forward that it belongs to, so it runs upwards.
      attributes["dir"] = "back";
      std::swap(from, to);
    }
    graph.add_edge(nodes_.at(from), nodes_.at(to), std::move(attributes));
  }

  // Returns when a box runs: its first operator, but in the backward the first one that is not run
  // again, as what runs again may do so long before.
  int order_of(size_t box) const {
    const auto& ops = boxes_[box].ops;
    const auto found = std::find_if(ops.begin(), ops.end(), [&](int op) {
      return operators_.ops[op].state != State::kRecomputed;
    });
    return found == ops.end() ? ops.front() : *found;
  }

  // In inches. Between a layer and its backward there is a label.
  const char* distance_between_neighbors() const {
    if (part_ != DrawnPart::kJoint)
      return "0.25";
    return has_stripes_ && layer_.empty() ? "0.7" : "0.45";
  }

  // Adds the legend and returns a node in its middle.
  int add_legend(DotGraph& graph) const {
    const int cluster = graph.add_cluster(
        DotGraph::kNoCluster,
        {{"label", has_stripes_ ? "legend (stripes are shares of a box)" : "legend"},
         {"labeljust", "l"},
         {"fontsize", "10"},
         {"color", "#bdbdbd"},
         {"rank", "same"}});
    struct Entry {
      const char* text;
      const char* color;
    };
    std::vector<Entry> entries;
    if (part_ != DrawnPart::kBackward) {
      entries = {{"kept for the backward", kSavedColor},
                 {"dropped, computed again in the backward", kDroppedColor},
                 {"not needed by the backward", kPlainColor}};
    } else {
      entries = {{"kept by the forward", kSavedColor}};
    }
    if (part_ != DrawnPart::kForward) {
      entries.push_back({"computed again", kRecomputedColor});
      entries.push_back({"backward", kBackwardColor});
    }
    std::vector<int> nodes;
    for (const auto& entry : entries) {
      nodes.push_back(graph.add_node(cluster, {{"label", entry.text}, {"fillcolor", entry.color}}));
      if (nodes.size() > 1)
        graph.add_edge(nodes[nodes.size() - 2], nodes.back(), {{"style", "invis"}});
    }
    return nodes[nodes.size() / 2];
  }

  Operators operators_;
  DrawnPart part_;
  std::string layer_;
  ModuleTree root_;
  std::vector<Box> boxes_;
  std::vector<size_t> box_of_;  // per operator
  std::vector<bool> left_out_;
  bool has_stripes_ = false;
  std::map<size_t, int> nodes_;  // of the graph, by box
  std::map<ClusterKey, int> clusters_;
};

}  // namespace

DotGraph draw_graph(const std::vector<DrawnRegion>& regions,
                    const std::vector<DrawnHandover>& handovers, DrawnPart part,
                    const std::string& layer, const std::string& title) {
  Operators operators;
  std::vector<std::string> names;
  for (size_t i = 0; i < regions.size(); ++i) {
    const auto& compiled = *regions[i].compiled_region;
    const auto* problem = compiled.plan() == nullptr ? nullptr : compiled.plan()->problem.get();
    read_operators(operators, i, compiled.gradient(), problem, regions[i].is_attribute, part);
    names.push_back(regions[i].name);
  }
  for (const auto& handover : handovers) {
    const auto from = operators.producers.find({handover.from_region, handover.from});
    const auto to = operators.producers.find({handover.to_region, handover.to});
    if (from != operators.producers.end() && to != operators.producers.end())
      operators.flows.push_back({from->second, to->second, {}, handover.from, false, true});
  }
  finish_reading(operators);
  return Picture(std::move(operators), part, layer).draw(names, title);
}

DotGraph draw_graph(const torch::jit::Gradient& gradient, const Problem* problem,
                    const std::vector<bool>& is_attribute, DrawnPart part,
                    const std::string& title) {
  Operators operators;
  read_operators(operators, 0, gradient, problem, is_attribute, part);
  finish_reading(operators);
  return Picture(std::move(operators), part, "").draw({""}, title);
}

}  // namespace aten_recompute
