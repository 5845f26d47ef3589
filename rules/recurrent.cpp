// Rules of recurrent cells and layers. Each is composed of other operators, as in ATen for the CPU
// (RNN.cpp): a cell of elementwise operators and matrix products, a network of layers and
// directions (rules/kernels/recurrent.cpp), between which a plan decides.
#include "rules/families.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <sstream>
#include <vector>

namespace aten_recompute {
namespace {

const std::string kFromHidden = "torch.linear(hidden, w_hh, b_hh)";
const std::string kFromInput = "torch.linear(input, w_ih, b_ih)";

Rule elman_cell(const std::string& function) {
  return {.op = "aten::rnn_" + function + "_cell",
          .forward =
              "    hidden = hx\n"
              "    return torch." +
              function + "(" + kFromHidden + " + " + kFromInput + ")"};
}

// ---- networks ----

enum class CellKind : uint8_t { kTanh, kRelu, kGru, kLstm };

// A recurrent network as the constant arguments of an operator such as aten::lstm.input define it.
struct Network {
  CellKind cell = CellKind::kTanh;
  int64_t num_layers = 0;
  int64_t num_directions = 1;
  int64_t weights_per_layer = 0;  // and direction
  bool has_biases = false;
  bool drops = false;  // between layers
  bool batch_first = false;

  int64_t num_cells() const { return num_layers * num_directions; }
  bool has_projections() const { return weights_per_layer == (has_biases ? 5 : 3); }
};

// Returns the network that `node` computes; nullopt if its arguments do not tell.
std::optional<Network> network_of(const torch::jit::Node* node, CellKind cell) {
  using torch::jit::constant_as;
  const auto input = [&](const char* name) {
    return node->input(static_cast<size_t>(node->schema().argumentIndexWithName(name).value()));
  };
  const auto num_layers = constant_as<int64_t>(input("num_layers"));
  const auto has_biases = constant_as<bool>(input("has_biases"));
  const auto dropout = constant_as<double>(input("dropout"));
  const auto train = constant_as<bool>(input("train"));
  const auto bidirectional = constant_as<bool>(input("bidirectional"));
  const auto batch_first = constant_as<bool>(input("batch_first"));
  const auto* weights = input("params")->node();
  if (!num_layers || !has_biases || !dropout || !train || !bidirectional || !batch_first ||
      *num_layers < 1 || weights->kind() != c10::prim::ListConstruct)
    return std::nullopt;
  Network network;
  network.cell = cell;
  network.num_layers = *num_layers;
  network.num_directions = *bidirectional ? 2 : 1;
  network.has_biases = *has_biases;
  network.drops = *train && *dropout != 0;
  network.batch_first = *batch_first;
  const auto num_weights = static_cast<int64_t>(weights->inputs().size());
  network.weights_per_layer = num_weights / network.num_cells();
  const int64_t expected = network.has_biases ? 4 : 2;
  const bool projects = cell == CellKind::kLstm && network.weights_per_layer == expected + 1;
  if (num_weights % network.num_cells() != 0 ||
      (network.weights_per_layer != expected && !projects))
    return std::nullopt;
  return network;
}

// Writes the forward of a network as TorchScript.
class NetworkWriter {
 public:
  explicit NetworkWriter(const Network& network) : network_(network) {}

  std::string text() {
    line(names("w", network_.num_cells() * network_.weights_per_layer) + " = params");
    if (is_lstm()) {
      line("all_h, all_c = hx");
      line(names("c", network_.num_cells()) + " = torch.unbind(all_c)");
    } else {
      line("all_h = hx");
    }
    line(names("h", network_.num_cells()) + " = torch.unbind(all_h)");
    line(network_.batch_first ? "x = input.transpose(0, 1)" : "x = input");
    for (int64_t layer = 0; layer < network_.num_layers; ++layer)
      add_layer(layer);
    line(network_.batch_first ? "y = x.transpose(0, 1)" : "y = x");
    const auto last = ", torch.stack([" + names("last_h", network_.num_cells()) + "])";
    const auto last_cells = ", torch.stack([" + names("last_c", network_.num_cells()) + "])";
    line("return y" + last + (is_lstm() ? last_cells : ""));
    return text_.str();
  }

 private:
  bool is_lstm() const { return network_.cell == CellKind::kLstm; }

  void line(const std::string& text) { text_ << "    " << text << "\n"; }

  // Returns "w0, w1, w2, ". The comma at the end makes one name take a list of one element apart.
  static std::string names(const std::string& name, int64_t count) {
    std::string names;
    for (int64_t i = 0; i < count; ++i)
      names += name + std::to_string(i) + (i + 1 < count || count == 1 ? ", " : "");
    return names;
  }

  // Writes one layer, which reads x and assigns its result to x.
  void add_layer(int64_t layer) {
    const auto first = layer * network_.num_directions;
    for (int64_t direction = 0; direction < network_.num_directions; ++direction)
      add_cell(first + direction, direction == 1);
    const auto y = "y" + std::to_string(first);
    line(network_.num_directions == 1 ? "x = " + y
                                      : "x = torch.cat([" + y + ", y" + std::to_string(first + 1) +
                                            "], y" + std::to_string(first) + ".dim() - 1)");
    if (network_.drops && layer + 1 < network_.num_layers)
      line("x = torch.dropout(x, dropout, True)");
  }

  void add_cell(int64_t index, bool reverse) {
    const auto i = std::to_string(index);
    const auto weight = [&](int64_t which) {
      return "w" + std::to_string(index * network_.weights_per_layer + which);
    };
    const auto bias = [&](int64_t which) {
      return network_.has_biases ? weight(which) : std::string("None");
    };
    const std::string direction = reverse ? ", True" : ", False";
    if (is_lstm()) {
      const auto projection =
          network_.has_projections() ? weight(network_.weights_per_layer - 1) : std::string("None");
      line("y" + i + ", last_h" + i + ", last_c" + i + ", gates" + i + ", cells" + i +
           " = recompute.lstm_layer(x, h" + i + ", c" + i + ", " + weight(0) + ", " + weight(1) +
           ", " + bias(2) + ", " + bias(3) + ", " + projection + direction + ", True, True)");
      return;
    }
    const auto arguments = "(torch.linear(x, " + weight(0) + ", " + bias(2) + "), h" + i + ", " +
                           weight(1) + ", " + bias(3);
    if (network_.cell == CellKind::kGru) {
      line("y" + i + ", last_h" + i + ", gates" + i + ", new_gates" + i + " = recompute.gru_layer" +
           arguments + direction + ")");
    } else {
      const std::string relu = network_.cell == CellKind::kRelu ? ", True" : ", False";
      line("y" + i + ", last_h" + i + " = recompute.rnn_layer" + arguments + relu + direction +
           ")");
    }
  }

  Network network_;
  std::ostringstream text_;
};

template <CellKind cell>
std::string compose_network(const torch::jit::Node* node) {
  const auto network = network_of(node, cell);
  return network ? NetworkWriter(*network).text() : "";
}

template <CellKind cell>
Rule network(const std::string& op) {
  return {.op = op, .compose = &compose_network<cell>, .on_cpu_only = true};
}

// Returns "[needs_<name>, ...]" for the names, which commas separate.
std::string needs_list(const std::string& names) {
  std::string list;
  for (const auto& name : split_names(names))
    list += (list.empty() ? "needs_" : ", needs_") + name;
  return "[" + list + "]";
}

// A rule with one formula: the kernel computes all gradients in one loop over the steps.
Rule layer(const std::string& op, const std::string& inputs, const std::string& arguments) {
  return {.op = "aten_recompute::" + op,
          .gradients = {{inputs, "recompute." + op + "_backward(" + arguments + ", " +
                                     needs_list(inputs) + ")"}}};
}

Rule lstm_layer() {
  const std::string inputs =
      "input, h0, c0, weight_input, weight_hidden, bias_input, bias_hidden, weight_projection";
  auto rule = layer(
      "lstm_layer", inputs,
      "grad, grad1, grad2, " + inputs + ", result, result1, result2, result3, result4, reverse");
  // How linear() multiplies depends on what requires grad.
  rule.forward =
      "recompute.lstm_layer(" + inputs + ", reverse, requires_input, requires_weight_input)";
  return rule;
}

}  // namespace

std::vector<Rule> recurrent_rules() {
  return {
      network<CellKind::kTanh>("aten::rnn_tanh.input"),
      network<CellKind::kRelu>("aten::rnn_relu.input"),
      network<CellKind::kGru>("aten::gru.input"),
      network<CellKind::kLstm>("aten::lstm.input"),
      layer("rnn_layer", "input, h0, weight, bias",
            "grad, grad1, h0, weight, bias, result, relu, reverse"),
      layer("gru_layer", "input, h0, weight, bias",
            "grad, grad1, h0, weight, bias, result, result2, result3, reverse"),
      lstm_layer(),
      elman_cell("tanh"),
      elman_cell("relu"),
      {.op = "aten::lstm_cell",
       .forward = "    hidden, cell = hx\n"
                  "    gates = " +
                  kFromHidden + " + " + kFromInput + R"(
    a, b, c, d = torch.unsafe_chunk(gates, 4, 1)
    ingate = a.sigmoid()
    forgetgate = b.sigmoid()
    cellgate = c.tanh()
    outgate = d.sigmoid()
    next_cell = forgetgate * cell + ingate * cellgate
    return outgate * next_cell.tanh(), next_cell)",
       .on_cpu_only = true},
      // ATen computes the reset and the update gate in place, where they are parts of the gates.
      // How sigmoid rounds depends on strides, so these two are parts of one tensor here, too. The
      // third part is copied, as there, because a backward that reads it would keep all three.
      {.op = "aten::gru_cell",
       .forward = "    hidden = hx\n"
                  "    size = hidden.size(1)\n"
                  "    gates_input, new_input = torch.unsafe_split_with_sizes(" +
                  kFromInput +
                  ", [2 * size, size], 1)\n"
                  "    gates_hidden, new_hidden = torch.unsafe_split_with_sizes(" +
                  kFromHidden + R"(, [2 * size, size], 1)
    reset_gate, update_gate = torch.unsafe_chunk(gates_hidden + gates_input, 2, 1)
    reset = reset_gate.sigmoid()
    update = update_gate.sigmoid()
    new_hidden = torch.clone(new_hidden)
    new = (new_input + new_hidden * reset).tanh()
    return (hidden - new) * update + new)",
       .on_cpu_only = true},
  };
}

}  // namespace aten_recompute
