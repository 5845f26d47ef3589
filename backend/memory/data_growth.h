// Whether the data of a call made larger tensors than its plan assumes.
#pragma once

#include "passes/pipeline.h"

namespace aten_recompute {

enum class DataGrowth {
  kNone,   // the plan still fits
  kTotal,  // all tensors together are larger
  kOfOne,  // one of them is so much larger that it may decide the peak
};

// Compares what the data of a call decided with what a plan assumes. Data that only move from one
// tensor to another, as tokens do between the experts of a mixture, hardly change a peak, so single
// tensors may be half as large again. Small tensors are ignored. `room` is how many times the
// plan's memory there is for a call; all tensors together may grow as long as memory that grows
// with their square has room. `sizes` may end early, with what the call has decided so far.
DataGrowth growth_of(const DataSizes& sizes, const DataSizes& assumed, double room = 1.0);

// Returns how many elements tensors of these sizes have together.
double elements_of(const DataSizes& sizes);

// Returns whether the data of a call decided on smaller or larger tensors than a plan assumes, by
// the same measures without room, so that its peak says little about the plan.
bool are_other_sizes(const DataSizes& sizes, const DataSizes& assumed);

// Returns the sizes that the next plan assumes after such a call. They end where `sizes` do: what
// the call has not decided yet would not go with what it has decided, and its data tell the rest
// when it is profiled.
DataSizes sizes_after(DataGrowth growth, const DataSizes& sizes, const DataSizes& assumed);

}  // namespace aten_recompute
