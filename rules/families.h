// The rules of this library, by operator family.
#pragma once

#include <vector>

#include "rules/rule.h"

namespace aten_recompute {

// Each function is defined in the file of that name.
std::vector<Rule> elementwise_rules();
std::vector<Rule> matrix_rules();
std::vector<Rule> convolution_rules();
std::vector<Rule> normalization_rules();
std::vector<Rule> activation_rules();
std::vector<Rule> softmax_rules();
std::vector<Rule> dropout_rules();
std::vector<Rule> embedding_rules();
std::vector<Rule> pooling_rules();
std::vector<Rule> reduction_rules();
std::vector<Rule> shape_rules();
std::vector<Rule> indexing_rules();
std::vector<Rule> loss_rules();
std::vector<Rule> attention_rules();
std::vector<Rule> recurrent_rules();
std::vector<Rule> distance_rules();
std::vector<Rule> spectral_rules();
std::vector<Rule> formula_rules();

}  // namespace aten_recompute
