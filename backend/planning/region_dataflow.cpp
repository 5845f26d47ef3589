#include "backend/planning/region_dataflow.h"

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "ir/operator_facts.h"

namespace aten_recompute {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& see) {
  value.visit([&](const c10::IValue& inner) {
    if (inner.isTensor() && inner.toTensor().defined())
      see(inner.toTensor());
    return false;
  });
}

const c10::StorageImpl* storage_of(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage())
    return nullptr;
  return value.toTensor().storage().unsafeGetStorageImpl();
}

}  // namespace

RegionDataflowRecorder::RegionDataflowRecorder(const std::vector<c10::IValue>& inputs) {
  for (const auto& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.has_storage())
        callers_.insert(tensor.storage().unsafeGetStorageImpl());
      if (tensor.requires_grad())
        outside_.insert(torch::autograd::impl::gradient_edge(tensor).function.get());
    });
  }
}

RegionDataflowRecorder::Gradient RegionDataflowRecorder::follow(const Edge& edge) const {
  Gradient gradient;
  gradient.goes_to = edge.function.get();
  auto& targets = gradient.targets;
  std::unordered_set<const Node*> seen;
  std::vector<Edge> pending{edge};
  while (!pending.empty()) {
    const auto next = pending.back();
    pending.pop_back();
    const auto* node = next.function.get();
    if (node == nullptr || outside_.count(node) != 0)
      continue;
    if (const auto run = run_of_.find(node); run != run_of_.end()) {
      const Target target{run->second, next.input_nr};
      if (std::find(targets.begin(), targets.end(), target) == targets.end())
        targets.push_back(target);
    } else if (seen.insert(node).second) {
      gradient.passthrough = gradient.passthrough && is_backward_of_whole_view(node->name());
      pending.insert(pending.end(), node->next_edges().begin(), node->next_edges().end());
    }
  }
  return gradient;
}

RegionRun::OtherValue RegionDataflowRecorder::first_in(const c10::StorageImpl* storage) const {
  for (size_t run = 0; run < records_.size(); ++run) {
    const auto& record = records_[run];
    for (size_t i = 0; i < record.given.size(); ++i) {
      if (record.given[i].from.run < 0 && record.given_storages[i]._unsafe_get_target() == storage)
        return {static_cast<int32_t>(run), record.given[i].value};
    }
    for (size_t i = 0; i < record.outputs.size(); ++i) {
      const auto value = record.compiled_region->plan()->boundary.outputs[i];
      if (value >= 0 && record.outputs[i]._unsafe_get_target() == storage)
        return {static_cast<int32_t>(run), value};
    }
  }
  return {-1, -1};
}

bool RegionDataflowRecorder::may_be_made_again(const CompiledRegion& compiled_region,
                                               const RegionRun::Given& given,
                                               const at::Tensor& tensor, size_t input) const {
  if (given.from.run < 0 || given.kept || !tensor.requires_grad() || tensor.is_leaf())
    return false;
  const auto edge = torch::autograd::impl::gradient_edge(tensor);
  const auto maker = run_of_.find(edge.function.get());
  if (maker == run_of_.end() || maker->second != given.from.run)
    return false;
  // It must be the very output, in memory of its own.
  const auto& made_by = *records_[maker->second].compiled_region;
  const auto& plan = *made_by.plan();
  const auto output = made_by.gradient().df_input_vjps[edge.input_nr];
  if (plan.boundary.outputs[output] != given.from.value ||
      tensor.storage().nbytes() != static_cast<size_t>(tensor.numel()) * tensor.itemsize())
    return false;
  const auto& problem = *plan.problem;
  const auto storages = problem.storages[given.from.value];
  const auto producer = problem.producer[given.from.value];
  if (storages.size() != 1 || producer < 0 || problem.is_view[producer] != 0 ||
      problem.held[storages[0]] != 0)
    return false;
  // Its gradient goes back to that run, whose backward is then the later one.
  const auto& differentiated = compiled_region.gradient().df_output_vjps;
  return std::find(differentiated.begin(), differentiated.end(), input) != differentiated.end();
}

bool RegionDataflowRecorder::has_changed(int32_t run) const {
  const auto& versions = records_[run].versions;
  return std::any_of(versions.begin(), versions.end(),
                     [](const auto& each) { return each.first.current_version() != each.second; });
}

void RegionDataflowRecorder::find_made_again(std::vector<RegionRun>& runs) const {
  const auto contains = [](const std::vector<int32_t>& values, int32_t value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  std::map<std::pair<int32_t, int32_t>, size_t> num_readers;
  for (const auto& run : runs) {
    for (const auto& given : run.given)
      ++num_readers[{given.from.run, given.from.value}];
  }
  for (auto& run : runs) {
    for (auto& given : run.given) {
      if (!given.may_be_made_again)
        continue;
      given.may_be_made_again = num_readers[{given.from.run, given.from.value}] == 1 &&
                                !has_changed(given.from.run) &&
                                !contains(runs[given.from.run].live_to_end, given.from.value) &&
                                !contains(run.problem->results, given.value);
    }
  }
}

void RegionDataflowRecorder::begin_run(std::shared_ptr<const CompiledRegion> compiled_region,
                                       const std::vector<bool>& is_attribute,
                                       const std::vector<c10::IValue>& inputs,
                                       const std::vector<bool>& is_kept,
                                       const std::vector<Edge>& edges) {
  Record record;
  const auto& boundary = compiled_region->plan()->boundary;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_attribute[i])
      callers_.insert(storage_of(inputs[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* storage = storage_of(inputs[i]);
    if (storage == nullptr || callers_.count(storage) != 0 || boundary.inputs[i] < 0)
      continue;
    record.given.push_back({boundary.inputs[i], first_in(storage), is_kept[i],
                            static_cast<int64_t>(storage->nbytes())});
    auto& given = record.given.back();
    given.may_be_made_again =
        may_be_made_again(*compiled_region, given, inputs[i].toTensor(), i) &&
        std::count_if(inputs.begin(), inputs.end(),
                      [&](const c10::IValue& other) { return storage_of(other) == storage; }) == 1;
    record.given_storages.push_back(inputs[i].toTensor().storage().getWeakStorageImpl());
  }
  for (const auto& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined())
      continue;
    const auto counter = input.toTensor().unsafeGetTensorImpl()->version_counter();
    if (counter.enabled())
      record.versions.emplace_back(counter, 0);
  }
  for (const auto& edge : edges)
    record.gradients.push_back(follow(edge));
  record.compiled_region = std::move(compiled_region);
  records_.push_back(std::move(record));
}

void RegionDataflowRecorder::end_run(const std::vector<c10::IValue>& outputs, NodePtr<Node> node) {
  auto& record = records_.back();
  const size_t count = record.compiled_region->gradient().f_real_outputs;
  for (size_t i = 0; i < count; ++i) {
    const auto* storage = storage_of(outputs[i]);
    record.outputs.push_back(
        storage == nullptr
            ? c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())
            : outputs[i].toTensor().storage().getWeakStorageImpl());
  }
  for (auto& [counter, version] : record.versions)
    version = counter.current_version();
  run_of_.emplace(node.get(), static_cast<int32_t>(records_.size()) - 1);
  record.node = std::move(node);
}

std::vector<RegionRun::Incoming> RegionDataflowRecorder::incoming_of(
    size_t run, const std::vector<Target>& from_loss) const {
  std::vector<RegionRun::Incoming> all;
  const auto& record = records_[run];
  for (size_t k = 0; k < record.compiled_region->plan()->problem->incoming.size(); ++k) {
    const Target target{static_cast<int32_t>(run), k};
    RegionRun::Incoming incoming;
    for (size_t other = records_.size(); --other > run;) {
      const auto& gradients = records_[other].gradients;
      for (size_t i = 0; i < gradients.size(); ++i) {
        const auto& targets = gradients[i].targets;
        const auto value = records_[other].compiled_region->plan()->boundary.gradients[i];
        if (value < 0 || std::find(targets.begin(), targets.end(), target) == targets.end())
          continue;
        incoming.gradients.push_back({static_cast<int32_t>(other), value});
        incoming.passthrough = incoming.passthrough && gradients[i].passthrough;
      }
    }
    incoming.from_loss = std::find(from_loss.begin(), from_loss.end(), target) != from_loss.end();
    // An output that is alive without a known reader may get its gradient with the loss.
    if (incoming.gradients.empty() && !incoming.from_loss)
      incoming.from_loss = is_alive(record, k);
    all.push_back(std::move(incoming));
  }
  return all;
}

bool RegionDataflowRecorder::is_alive(const Record& record, size_t vjp) {
  const auto output = record.compiled_region->gradient().df_input_vjps[vjp];
  return output >= record.outputs.size() || !record.outputs[output].expired();
}

bool RegionDataflowRecorder::is_read_later(size_t run, int32_t value) const {
  for (size_t later = run + 1; later < records_.size(); ++later) {
    for (const auto& given : records_[later].given) {
      if (given.from.run == static_cast<int32_t>(run) && given.from.value == value)
        return true;
    }
  }
  return false;
}

std::vector<int32_t> RegionDataflowRecorder::stays_of(
    size_t run, const std::unordered_set<const void*>& returned, bool accumulate) const {
  const auto& record = records_[run];
  const auto& boundary = record.compiled_region->plan()->boundary;
  const auto& results = record.compiled_region->plan()->problem->results;
  std::unordered_set<int32_t> gone;
  std::vector<int32_t> live_to_end;
  // Outputs that later regions read count with those regions; others may be freed already.
  for (size_t i = 0; i < boundary.outputs.size(); ++i) {
    const auto value = boundary.outputs[i];
    const bool is_returned = returned.count(record.outputs[i]._unsafe_get_target()) != 0;
    if (value >= 0 && !is_returned && (is_read_later(run, value) || record.outputs[i].expired())) {
      gone.insert(value);
    }
  }
  // Gradients that go to earlier regions or are added to one that a later region made do not stay.
  for (size_t i = 0; i < record.gradients.size(); ++i) {
    const auto& gradient = record.gradients[i];
    auto goes_there = [&](const Gradient& other) {
      return other.targets.empty() && other.goes_to == gradient.goes_to;
    };
    auto any = [&](size_t begin, size_t end) {
      return std::any_of(records_.begin() + static_cast<std::ptrdiff_t>(begin),
                         records_.begin() + static_cast<std::ptrdiff_t>(end), [&](const Record& r) {
                           return std::any_of(r.gradients.begin(), r.gradients.end(), goes_there);
                         });
    };
    if (!gradient.targets.empty() || any(run + 1, records_.size()))
      gone.insert(boundary.gradients[i]);
    else if (accumulate && any(0, run))
      live_to_end.push_back(boundary.gradients[i]);  // gradients of earlier runs are added to it
  }
  for (auto value : results) {
    if (gone.count(value) == 0)
      live_to_end.push_back(value);
  }
  return live_to_end;
}

std::vector<RegionRun> RegionDataflowRecorder::runs(const c10::IValue& result,
                                                    const Options& options) const {
  std::vector<Target> from_loss;
  std::unordered_set<const void*> returned;
  for_each_tensor(result, [&](const at::Tensor& tensor) {
    if (tensor.has_storage())
      returned.insert(tensor.storage().unsafeGetStorageImpl());
    if (!tensor.requires_grad())
      return;
    const auto targets = follow(torch::autograd::impl::gradient_edge(tensor)).targets;
    from_loss.insert(from_loss.end(), targets.begin(), targets.end());
  });
  std::vector<RegionRun> runs;
  for (size_t run = 0; run < records_.size(); ++run) {
    const auto& record = records_[run];
    runs.push_back({record.compiled_region->plan()->problem.get(),
                    record.given,
                    incoming_of(run, from_loss),
                    stays_of(run, returned, options.accumulate),
                    {}});
    const auto& live_to_end = runs.back().live_to_end;
    const auto& outputs = record.compiled_region->plan()->boundary.outputs;
    const auto& freed_before_backward =
        record.compiled_region->plan()->problem->freed_before_backward;  // for this region alone
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (returned.count(record.outputs[i]._unsafe_get_target()) != 0 &&
          std::find(freed_before_backward.begin(), freed_before_backward.end(), outputs[i]) !=
              freed_before_backward.end() &&
          std::find(live_to_end.begin(), live_to_end.end(), outputs[i]) != live_to_end.end())
        runs.back().freed_before_backward.push_back(outputs[i]);
    }
  }
  find_made_again(runs);
  return runs;
}

}  // namespace aten_recompute
