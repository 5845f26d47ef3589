// Rules of recurrent cells: each is composed of other operators, as in ATen for the CPU (RNN.cpp).
#include "rules/rule.h"

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

}  // namespace

std::vector<Rule> recurrent_rules() {
  return {
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
    return outgate * next_cell.tanh(), next_cell)"},
      {.op = "aten::gru_cell",
       .forward = "    hidden = hx\n"
                  "    reset_input, update_input, new_input = torch.unsafe_chunk(" +
                  kFromInput +
                  ", 3, 1)\n"
                  "    reset_hidden, update_hidden, new_hidden = torch.unsafe_chunk(" +
                  kFromHidden + R"(, 3, 1)
    reset = (reset_hidden + reset_input).sigmoid()
    update = (update_hidden + update_input).sigmoid()
    new = (new_input + new_hidden * reset).tanh()
    return (hidden - new) * update + new)"},
  };
}

}  // namespace aten_recompute
