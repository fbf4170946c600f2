// Who computes with which matrix, where matrices are cut over ranks, and what travels for it.
#pragma once

#include <vector>

#include "titanium/parallel/parallel_dims.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// The part of the parameter that world rank `rank` stores, from the parameter's placements alone.
Box shard_on_rank(const Parameter& parameter, const ParallelDims& dims, int rank);

// Note [One owner per matrix]
// The ranks of a pipeline stage share their parameters, cut or as copies. Each matrix has one owner among them. In a
// round every owner takes its next matrix: the pieces of all these matrices travel to the owners in one exchange, every
// owner computes, and the pieces of the results travel to everybody who stores them. Owners are chosen so that all have
// about the same work; a rank that stores all of a matrix is preferred, because then nothing has to be gathered. A
// piece that several ranks hold alike is sent by the one that stands where the owner stands among the owner's copies.
//
// A round moves about one matrix to and from every rank. Where R ranks hold the same shard, results are R times as
// much: they travel in R waves, so that buffers never hold more than about one matrix.
struct MatrixPiece {
  Box box;   // of the global tensor
  int peer;  // the other rank's place in the stage; this rank's own: nothing travels
};

struct OwnedMatrix {
  Parameter* parameter = nullptr;
  Box box;
  int owner = 0;
};

struct MatrixRound {
  // Matrices of the round that concern this rank, with the pieces that it sends or receives for them.
  struct Part {
    OwnedMatrix matrix;
    std::vector<MatrixPiece>
        inputs;  // of the owner: from where each piece comes; of others: what they send to the owner
    std::vector<MatrixPiece> results;  // of the owner: where each piece goes; of others: what they get from the owner
  };
  std::vector<Part> parts;  // in the order of their owners
  bool gathers = false;     // on some rank pieces travel to an owner; equal on all ranks
  bool scatters = false;    // and from it
};

struct MatrixPlan {
  std::vector<MatrixRound> rounds;
  int64_t waves = 1;         // of the results of a round
  int64_t largest = 0;       // elements of a matrix
  std::vector<double> work;  // of each rank of the stage
};

// The same on all ranks of the stage, but for the parts, which are those of `rank`. The parameters are placed.
MatrixPlan plan_matrices(const std::vector<Parameter*>& parameters, const ParallelDims& dims, int rank);

// The world ranks of the pipeline stage that `rank` belongs to, ascending.
std::vector<int> stage_members(const ParallelDims& dims, int rank);

}  // namespace titanium::parallel
