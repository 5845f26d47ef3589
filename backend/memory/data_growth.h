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
// tensors may be half as large again. Small tensors are ignored.
DataGrowth growth_of(const DataSizes& sizes, const DataSizes& assumed);

// Returns whether the data of a call decided on smaller tensors than a plan assumes, by the same
// measures, so that its peak says little about the plan.
bool has_shrunk(const DataSizes& sizes, const DataSizes& assumed);

// Returns the larger size of each dimension.
DataSizes larger_of_each(const DataSizes& sizes, const DataSizes& assumed);

}  // namespace aten_recompute
